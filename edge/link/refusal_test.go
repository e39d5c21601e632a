package link_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/journal"
	"skerry/edge/link"
	"skerry/fleet"
	"skerry/syncproto"
)

func TestRefusals(t *testing.T) {
	refuse := func(r syncproto.Refused) func(syncproto.Hello) *syncproto.Refused {
		return func(syncproto.Hello) *syncproto.Refused { return &r }
	}
	tests := map[string]struct {
		refused    syncproto.Refused
		state      link.State
		atLeast    time.Duration // between Hellos
		fenced     bool
		manyWithin time.Duration // three Hellos arrive within
	}{
		"unavailable":             {refused: syncproto.Refused{Code: fleet.CodeUnavailable, Message: "no leader"}, state: link.StateWaiting, manyWithin: 10 * time.Second},
		"unavailable, not before": {refused: syncproto.Refused{Code: fleet.CodeUnavailable, RetryAfter: 20 * time.Second}, state: link.StateWaiting, atLeast: 20 * time.Second},
		"cloned":                  {refused: syncproto.Refused{Code: fleet.CodeCloned, Message: "another machine"}, state: link.StateFenced, atLeast: 30 * time.Second, fenced: true},
		"fork":                    {refused: syncproto.Refused{Code: fleet.CodeFork, Message: "another history"}, state: link.StateFenced, atLeast: 30 * time.Second, fenced: true},
		"version":                 {refused: syncproto.Refused{Code: fleet.CodeVersion, Message: "too old"}, state: link.StateWaiting, atLeast: 30 * time.Second},
		"away too long":           {refused: syncproto.Refused{Code: fleet.CodeCertExpiry, Message: "its certificate ended"}, state: link.StateWaiting, atLeast: 30 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLinkTest(t)
				w.addHub(hubAddr)
				w.journal.appendRows(running(1))
				w.cluster.refuse = refuse(tt.refused)
				var told []fleet.Code // owned by Run's goroutine
				w.cfg.Ended = func(why *fleet.Error) { told = append(told, why.Code) }
				w.startLink()
				var at []time.Time
				for len(at) < 3 {
					n := len(at)
					w.waitUntil(3*time.Minute, "the next Hello", func() bool {
						return len(w.cluster.takeSnapshot().hellos) > n
					})
					at = append(at, time.Now())
				}
				for i := 1; i < len(at); i++ {
					if d := at[i].Sub(at[i-1]); d < tt.atLeast {
						t.Errorf("tried again after %s, want %s at least", d, tt.atLeast)
					}
				}
				if d := at[2].Sub(at[0]); tt.manyWithin > 0 && d > tt.manyWithin {
					t.Errorf("three attempts took %s", d)
				}
				w.waitUntil(5*time.Second, "pause", func() bool { return w.link.Status().NextTry > 0 })
				s := w.link.Status()
				if s.State != tt.state || (s.Fenced != "") != tt.fenced || s.NextTry == 0 || !strings.Contains(s.LastError, tt.refused.Message) {
					t.Errorf("status %+v", s)
				}
				if seen := w.cluster.takeSnapshot(); len(seen.batches) > 0 || len(seen.beats) > 0 {
					t.Error("something was sent after a refusal")
				}
				w.cluster.withLock(func() { w.cluster.refuse = nil })
				w.waitUntil(3*time.Minute, "settle once it is let in", w.isFullySynced)
				if s := w.link.Status(); s.Fenced != "" || s.LastError != "" {
					t.Errorf("status once it is let in: %+v", s)
				}
				w.stop()
				if len(told) < 3 || told[0] != tt.refused.Code {
					t.Errorf("told why sessions ended: %v", told)
				}
			})
		})
	}
}

// TestTimeAfterAHubsCertificateIsNotBelieved has hubs with fast clocks: with a time after the end of
// their certificate, the edge would refuse the hubs with correct clocks.
func TestTimeAfterAHubsCertificateIsNotBelieved(t *testing.T) {
	for name, try := range map[string]struct {
		fast     time.Duration
		believed bool
	}{
		"by a month":     {30 * 24 * time.Hour, true},
		"by two hundred": {200 * 365 * 24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLinkTest(t)
				w.cluster.fast = try.fast
				w.addHub(hubAddr)
				w.startLink()
				w.waitUntil(5*time.Second, "connect", w.isConnected)
				switch at := w.journal.lastHubTime(); {
				case try.believed && time.Until(time.Unix(0, at)) < try.fast-time.Minute:
					t.Errorf("noted %s", time.Unix(0, at))
				case !try.believed && at != 0:
					t.Errorf("believed %s", time.Unix(0, at))
				}
				time.Sleep(time.Minute)
				if w.journal.hasUnsavedHeartbeat() {
					t.Error("an answered heartbeat is not saved")
				}
			})
		})
	}
}

func TestStaleSessionIsMendedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.cluster.session = 41 // the edge's disk was restored
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		if hellos := w.cluster.takeSnapshot().hellos; len(hellos) != 2 || hellos[1].Session != 42 || w.journal.Link().Session != 42 {
			t.Errorf("Hellos %+v, remembered %+v; want two, the second of session 42", hellos, w.journal.Link())
		}
	})
}

// An edge pauses longer and longer if a hub says again and again that its session is stale, and not at
// all the first time or after another refusal.
func TestPausesWhereSessionsAreStale(t *testing.T) {
	stale := syncproto.Refused{Code: fleet.CodeStaleSession, Message: "stale"}
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		var at []time.Time // of Hellos
		w.cluster.refuse = func(syncproto.Hello) *syncproto.Refused {
			if at = append(at, time.Now()); len(at) == 1 {
				return &syncproto.Refused{Code: fleet.CodeUnavailable, Message: "no leader"}
			}
			return &stale
		}
		w.startLink()
		time.Sleep(time.Minute)
		w.stop()
		if len(at) < 4 || len(at) > 50 {
			t.Fatalf("%d Hellos within a minute", len(at))
		}
		if d := at[2].Sub(at[1]); d > 100*time.Millisecond {
			t.Errorf("the first stale session is mended after %s", d)
		}
	})
}

func TestAnotherClusterIsNotTalkedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.journal.mem = journal.Link{Session: 3, Cluster: "cluster-0", Disconnected: true}
		w.startLink()
		time.Sleep(3 * time.Minute)
		if seen := w.cluster.takeSnapshot(); len(seen.beats) > 0 || len(seen.hellos) == 0 || len(seen.hellos) > 6 {
			t.Errorf("%d beats and %d Hellos to another cluster", len(seen.beats), len(seen.hellos))
		}
		if s := w.link.Status(); !strings.Contains(s.LastError, "belongs to cluster") {
			t.Errorf("status %+v", s)
		}
	})
}

// TestClusterThatWentBack restores a cluster from an older snapshot. The edge notices that also if its
// index has grown past the old one since.
func TestClusterThatWentBack(t *testing.T) {
	for name, index := range map[string]fleet.Index{"behind": 50, "grown past it since": 500} {
		t.Run(name, func(t *testing.T) { testClusterThatWentBack(t, index) })
	}
}

func testClusterThatWentBack(t *testing.T, index fleet.Index) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		for i := range 20 {
			w.journal.appendRows(running(i))
		}
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		w.stop()
		w.journal.dropRowsBefore(15)                  // acknowledged long ago
		w.cluster.index, w.cluster.applied = index, 5 // restored from an older snapshot
		w.cluster.rows, w.cluster.chain = w.cluster.rows[:5], nil
		w.cluster.restored = w.journal.Link().Index // the edge knows of this restore
		w.site.desired = 90
		var back []fleet.Index
		fails := true
		w.cfg.NoteIndex = func(_ context.Context, index fleet.Index) error {
			back = append(back, index)
			if fails {
				fails = false
				return errors.New("the disk is full")
			}
			return nil
		}
		w.startLink()
		w.waitUntil(link.DefaultBackoffCap, "settle", w.isFullySynced)
		if len(back) != 2 || back[0] != index+1 || back[1] != index+2 { // each session is an entry
			t.Errorf("the edge was told that the cluster is at %v, want %d and %d", back, index+1, index+2)
		}
		if s := w.link.Status(); !strings.Contains(s.WentBack, "had acknowledged row 20") || strings.Contains(s.WentBack, "a snapshot was restored") {
			t.Errorf("status %+v", s)
		}
		if n := w.site.restateCount(); n != 1 {
			t.Errorf("restated %d times, want once", n)
		}
		batches := w.cluster.takeSnapshot().batches
		b := batches[len(batches)-1]
		if !b.Base || b.First != 15 {
			t.Errorf("the replay starts at %d (base %v), want 15 as a new base", b.First, b.Base)
		}
		wantAlternating(t, w, 1)
		rows := w.cluster.takeSnapshot().rows
		if last := rows[len(rows)-1]; last.Message != "restated" {
			t.Errorf("the last row is %q", last.Message)
		}
	})
}

// TestIndexOfAnOlderRelease connects twice to hubs that name their index only in the Welcome: the cluster did not go back.
func TestIndexOfAnOlderRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.cluster.oldRelease = true
		for range 2 {
			w.startLink()
			w.waitUntil(time.Second, "settle", w.isFullySynced)
			if l, s := w.journal.Link(), w.link.Status(); l.Index == 0 || l.Term != 1 || s.WentBack != "" {
				t.Errorf("the edge remembers index %d of term %d, and says %q", l.Index, l.Term, s.WentBack)
			}
			w.stop()
		}
	})
}

// TestEachSessionNotesTheIndex: an edge whose last session began before the state that the cluster went back to does not know that it
// went back. What it has of a newer index says so.
func TestEachSessionNotesTheIndex(t *testing.T) {
	for _, oldRelease := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newLinkTest(t)
			w.addHub(hubAddr)
			w.cluster.oldRelease = oldRelease
			var noted []fleet.Index
			w.cfg.NoteIndex = func(_ context.Context, index fleet.Index) error {
				noted = append(noted, index)
				return nil
			}
			for n := 1; n <= 2; n++ {
				w.startLink()
				w.waitUntil(time.Second, "settle", w.isFullySynced)
				switch last := w.journal.Link().Index; {
				case oldRelease && len(noted) > 0:
					t.Errorf("index %v of an older release, which may be of a hub that lags", noted)
				case !oldRelease && (len(noted) != n || noted[n-1] != last):
					t.Errorf("session %d at index %d: noted %v", n, last, noted)
				}
				w.stop()
			}
		})
	}
}

// TestRestoredSnapshotIsSaidOnce: after a restored snapshot the cluster's indexes are higher than
// before, and it may have all rows of an edge that recorded nothing since.
func TestRestoredSnapshotIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.journal.appendRows(running(0))
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		w.stop()
		w.cluster.index, w.cluster.restored = 600, 500
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		said := w.link.Status().WentBack
		if !strings.Contains(said, "a snapshot was restored at index 500") {
			t.Errorf("the edge says %q", said)
		}
		w.stop()
		w.cluster.index = 700
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		if again := w.link.Status().WentBack; again != said {
			t.Errorf("of the same restore it says %q as well", again)
		}
		wantAlternating(t, w, 1)
	})
}

// TestRestoreAfterTheWelcome: a snapshot is restored between the Welcome, which says that the cluster has all rows, and the
// first acknowledgement, which says that it has none.
func TestRestoreAfterTheWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		for i := range 5 {
			w.journal.appendRows(running(i))
		}
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		w.stop()
		w.cluster.restoreInSession = true
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		s := w.cluster.takeSnapshot()
		if len(s.hellos) != 2 || len(s.rows) < 5 || s.rows[0].Message != "row 0" {
			t.Errorf("%d sessions, the cluster has %d rows; want two, and all rows", len(s.hellos), len(s.rows))
		}
	})
}

// TestLostJournalGoesOnFromTheCluster: an edge that lost its rows asks where to continue, and connects
// again at once with a rebased journal.
func TestLostJournalGoesOnFromTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		for i := range 20 {
			w.journal.appendRows(running(i))
		}
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		w.stop()
		before := len(w.cluster.takeSnapshot().rows)
		w.journal.loseAllRows("the database is gone")
		w.journal.appendRows(running(20))
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		s := w.cluster.takeSnapshot()
		rows := s.rows[before:]
		if len(rows) < 2 || rows[0].Kind != fleet.TransitionGap || rows[1].Message != "row 20" {
			t.Errorf("rows after the loss: %+v", rows)
		}
		for _, r := range rows[2:] {
			if r.Kind == fleet.TransitionDisconnect {
				t.Errorf("asking where to go on looks like a loss of the link: %+v", rows)
			}
		}
		var lost []string
		for _, h := range s.hellos {
			lost = append(lost, h.Lost)
		}
		// The session number is lost too: the first attempt is refused as stale.
		if want := []string{"", "the database is gone", "the database is gone", ""}; !slices.Equal(lost, want) {
			t.Errorf("its sessions say %q, want %q", lost, want)
		}
		if h := s.hellos[len(s.hellos)-1]; h.First != fleet.Seq(before+1) {
			t.Errorf("it goes on from %d, want %d", h.First, before+1)
		}
	})
}

// TestLostJournalOfAnEdgeThatSentNothing: a cluster that has applied no row has no hash either, and the edge continues from
// its first row.
func TestLostJournalOfAnEdgeThatSentNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.journal.appendRows(running(0))
		w.journal.loseAllRows("the database is gone")
		w.journal.appendRows(running(1))
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		rows := w.cluster.takeSnapshot().rows
		if last := rows[len(rows)-1]; last.Message != "row 1" || w.journal.Head().First != 1 {
			t.Errorf("the journal goes on from %d, and the last row is %+v", w.journal.Head().First, last)
		}
	})
}

// TestRowsLostUnderASession: a journal that loses rows during a session sends that session nothing
// more; the next one asks where to continue.
func TestRowsLostUnderASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		for i := range 20 {
			w.journal.appendRows(running(i))
		}
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		before := len(w.cluster.takeSnapshot().rows)
		w.journal.loseAllRows("the database was cut short")
		w.journal.appendRows(running(20))
		w.waitUntil(time.Minute, "settle", func() bool { return w.isFullySynced() && w.journal.Head().Lost == "" })
		s := w.cluster.takeSnapshot()
		if rows := s.rows[before:]; len(rows) < 2 || rows[0].Kind != fleet.TransitionGap || rows[1].Message != "row 20" {
			t.Errorf("rows after the loss: %+v", rows)
		}
		if h := s.hellos[len(s.hellos)-1]; h.Lost != "" || h.First != fleet.Seq(before+1) {
			t.Errorf("it goes on from %d, lost %q; want %d", h.First, h.Lost, before+1)
		}
	})
}

func TestDiskThatFailsKeepsTheLinkTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		w.path.Cut()
		w.journal.failKeep(errors.New("disk full"))
		time.Sleep(2 * time.Minute)
		w.path.Heal()
		time.Sleep(2 * time.Minute)
		if w.isConnected() {
			t.Error("a session began whose counter was not kept")
		}
		w.journal.failKeep(nil)
		w.waitUntil(2*time.Minute, "settle", w.isFullySynced)
	})
}

func TestSlowCommitIsNoDeadLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		h := w.addHub(hubAddr)
		w.cluster.stuck = true // no leader to commit the session
		w.startLink()
		time.Sleep(15 * time.Second)
		if n := len(w.cluster.takeSnapshot().hellos); n != 1 {
			t.Errorf("%d sessions while the first is being committed", n)
		}
		w.cluster.withLock(func() { w.cluster.stuck = false })
		h.runInSession(func(p *syncproto.HubSession) []syncproto.Output {
			return p.Acknowledge(syncproto.HeartbeatAck{Epoch: 1, TTL: 10 * time.Second})
		})
		w.waitUntil(time.Second, "connect", w.isConnected)
	})
}

// A hub ends one stream of a live connection: the session ends, with a reason.
func TestEndOfAStreamEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		h := w.addHub(hubAddr)
		var told []*fleet.Error // owned by Run's goroutine
		w.cfg.Ended = func(why *fleet.Error) { told = append(told, why) }
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		h.mu.Lock()
		control := h.controls[0]
		h.mu.Unlock()
		if err := control.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		w.waitUntil(5*time.Minute, "come back", func() bool { return len(w.cluster.takeSnapshot().hellos) == 2 })
		if len(told) != 1 || told[0] == nil || told[0].Message == "" {
			t.Errorf("the session ended with %v", told)
		}
	})
}
