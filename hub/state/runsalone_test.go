package state_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// runsAlone has one allocation, whose job stops it after a time without a hub.
type runsAlone struct {
	*storeHarness
	node fleet.NodeID
	id   fleet.AllocID
}

func newRunsAlone(t *testing.T, after time.Duration) *runsAlone {
	w := &runsAlone{storeHarness: clustered(newTestHarness(t))}
	w.node = w.addReadyNode("n1")
	w.registerAfter(after)
	w.id = w.placeAllocs("shop", w.node, 1)[0]
	w.reportStatus(w.node, fleet.ClientRunning, w.id)
	w.receiveAll()
	return w
}

// registerAfter registers a version with that stop_on_client_after; 0: none.
func (w *runsAlone) registerAfter(after time.Duration) {
	j := job("shop", fleet.JobTypeService, 1)
	if after > 0 {
		j.TaskGroups[0].Disconnect = &fleet.Disconnect{StopOnClientAfter: &after}
	}
	w.registerJob(j)
}

// updateInPlace changes the allocation to a version with that stop_on_client_after.
func (w *runsAlone) updateInPlace(after time.Duration) {
	w.registerAfter(after)
	j, a := w.getJob("shop"), *w.getAlloc(w.id)
	a.JobVersion, a.JobHash = j.Version, j.SpecHash
	w.updateAllocs(a)
}

// receiveAll has the edge journal what the hubs want now.
func (w *runsAlone) receiveAll() {
	w.applyRowBatches(state.NodeRows{NodeID: w.node, Epoch: w.getNode(w.node).Epoch, Received: w.index})
}

// wantAlone checks for how long the edge may run the allocation, besides the time that its tasks have to end.
func (w *runsAlone) wantAlone(want time.Duration) {
	w.Helper()
	a := w.getAlloc(w.id)
	got := a.RunsAloneFor(w.getNode(w.node).Received)
	if want != fleet.RunsOn {
		want += a.Group().Tasks[0].KillTimeout
	}
	if got != want {
		w.Fatalf("its edge may run it for %s without a hub, want %s", got, want)
	}
}

// The longest time of the versions that an edge may have counts until it has the newest one.
func TestShorterTimeCountsWhenItsEdgeHasIt(t *testing.T) {
	w := newRunsAlone(t, 10*time.Minute)
	w.updateInPlace(time.Minute)
	w.wantAlone(10 * time.Minute)
	w.updateInPlace(5 * time.Minute)
	w.wantAlone(10 * time.Minute)
	w.receiveAll()
	w.wantAlone(5 * time.Minute)
	w.updateInPlace(2 * time.Minute)
	w.wantAlone(5 * time.Minute)
	w.updateInPlace(time.Hour)
	w.wantAlone(time.Hour)
	w.receiveAll()
	w.updateInPlace(0)
	w.updateInPlace(time.Minute)
	w.wantAlone(fleet.RunsOn)
	w.receiveAll()
	w.wantAlone(time.Minute)
}

// A time that the edge has had does not count any more when the hub changes its allocation again, which the edge may never receive.
func TestFormerTimeEndsWhenItsEdgeHasTheNewest(t *testing.T) {
	for _, former := range []time.Duration{0, 10 * time.Minute} {
		w := newRunsAlone(t, former)
		w.updateInPlace(time.Minute)
		w.receiveAll()
		w.missHeartbeats(w.node)
		w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, w.id)...)
		w.wantAlone(time.Minute)
	}
}

// After a restore an edge may have a version that is forgotten.
func TestRestoreKeepsHowLongAnEdgeRunsAlone(t *testing.T) {
	w := newRunsAlone(t, time.Hour)
	w.updateInPlace(time.Minute)
	w.receiveAll() // the hour is over, and what the snapshot still has of it hides nothing
	file := mustPersist(t, w.store)
	w.updateInPlace(10 * time.Minute)
	w.receiveAll()
	w.restoreSnapshot(file)
	w.wantAlone(10 * time.Minute)
	if got, want := w.replayLog().View().Digest(), w.store.View().Digest(); got != want {
		t.Error("a hub that reads the same log comes to another state")
	}
	w.openNextSession(w.node)
	w.receiveAll()
	w.wantAlone(time.Minute)
}

// A time that the edge had once, and has no longer, is not there again after a restore.
func TestRestoreForgetsAFormerTime(t *testing.T) {
	w := newRunsAlone(t, time.Minute)
	file := mustPersist(t, w.store)
	w.updateInPlace(10 * time.Minute)
	w.updateInPlace(2 * time.Minute)
	w.receiveAll()
	w.restoreSnapshot(file)
	w.wantAlone(2 * time.Minute)
}
