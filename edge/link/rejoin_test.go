package link_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
)

// TestRejoinedOncePerDisconnect: the rows about running tasks are recorded once if the cluster had
// counted the edge as disconnected, however many sessions it takes until it is ready, and not at the
// first session or after a flap. An edge learns that its node is ready with the answer to its last row.
func TestReadyByTheAnswerToARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.cluster.withLock(func() { w.cluster.status, w.cluster.rowStatus = fleet.NodeInitializing, fleet.NodeReady })
		w.startLink()
		w.waitUntil(time.Second, "connect", w.isConnected)
		w.journal.appendRows(running(1))
		w.waitUntil(3*time.Second, "hear that it is ready", func() bool { return w.link.Status().NodeStatus == fleet.NodeReady })
	})
}

func TestRejoinedOncePerDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		want := func(when string, rejoins int, waiting bool) {
			t.Helper()
			w.journal.mu.Lock()
			got := w.journal.rejoins
			w.journal.mu.Unlock()
			if now := w.journal.Link().Rejoined; got != rejoins || now != waiting {
				t.Errorf("%s: rejoined %d times, waiting %v; want %d, %v", when, got, now, rejoins, waiting)
			}
		}
		status := func(s fleet.NodeStatus) { w.cluster.withLock(func() { w.cluster.status = s }) }
		again := func() {
			t.Helper()
			w.path.Cut()
			w.waitUntil(5*time.Minute, "notice the cut", func() bool { return !w.isConnected() })
			w.path.Heal()
			w.waitUntil(5*time.Minute, "settle", w.isFullySynced)
		}
		status(fleet.NodeInitializing)
		w.journal.mem.Cluster = w.cluster.id // the enrolment says it
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		want("first session", 0, false)

		status(fleet.NodeReady)
		again()
		want("blip", 0, false)

		status(fleet.NodeInitializing)
		again()
		want("missed", 1, true)
		again()
		want("missed, and cut again before it was ready", 1, true)

		status(fleet.NodeReady)
		w.waitUntil(time.Minute, "hear that it is ready", func() bool { return !w.journal.Link().Rejoined })
		again()
		want("ready, and a blip", 1, false)
		status(fleet.NodeInitializing)
		again()
		want("missed for the second time", 2, true)
	})
}

// A return that could not be recorded on a full disk is recorded with the next one, and the loss before it once.
func TestAReturnThatCouldNotBeJournaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLinkTest(t)
		w.addHub(hubAddr)
		w.startLink()
		w.waitUntil(time.Second, "settle", w.isFullySynced)
		w.path.Cut()
		w.waitUntil(5*time.Minute, "notice the cut", func() bool { return !w.isConnected() })
		w.journal.failAfter(1, errors.New("no space left on device")) // the number of the session still fits
		w.path.Heal()
		time.Sleep(5 * time.Minute)
		w.journal.failKeep(nil)
		w.waitUntil(5*time.Minute, "settle", w.isFullySynced)
		wantAlternating(t, w, 1)
		w.path.Cut()
		w.waitUntil(5*time.Minute, "notice the cut", func() bool { return !w.isConnected() })
		w.path.Heal()
		w.waitUntil(5*time.Minute, "settle", w.isFullySynced)
		wantAlternating(t, w, 2)
	})
}
