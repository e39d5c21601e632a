package link_test

import (
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// An edge whose directory is an older copy continues where the cluster stands, at once and without a fence.
func TestPutBackDirectoryGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		chain := []byte("what the cluster has")
		w.cluster.applied, w.cluster.chain = 30, chain
		w.cluster.refuse = func(h syncproto.Hello) *syncproto.Refused {
			if h.Lost != "" || h.First > 30 {
				return nil
			}
			return &syncproto.Refused{Code: fleet.CodePutBack, Message: "an older copy", Applied: 30}
		}
		w.journal.appendRows(running(1), running(2))
		w.startLink()
		w.waitUntil(5*time.Second, "settle", w.isFullySynced)
		if s := w.link.Status(); s.Fenced != "" || s.LastError != "" {
			t.Errorf("status: %+v", s)
		}
		rows := w.cluster.takeSnapshot().rows
		if len(rows) < 3 || rows[0].Kind != fleet.TransitionGap || rows[1].Message != "row 1" {
			t.Errorf("the cluster was told %+v", rows)
		}
	})
}

// If a hub repeats that, the edge pauses before it connects again.
func TestPutBackIsBelievedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.cluster.refuse = func(syncproto.Hello) *syncproto.Refused {
			return &syncproto.Refused{Code: fleet.CodePutBack, Message: "an older copy", Applied: 30}
		}
		w.startLink()
		time.Sleep(10 * time.Minute)
		if n := len(w.cluster.takeSnapshot().hellos); n > 60 {
			t.Errorf("%d Hellos in ten minutes", n)
		}
	})
}
