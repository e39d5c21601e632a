package state_test

import (
	"fmt"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// An allocation that was told to stop and has not said that it did becomes unknown when its node is disconnected or
// down. It has its reported status again when the node is back. Nomad's rules leave it as it is, for an evaluation to
// decide. A job that was stopped or purged is no exception.
func TestStoppingAllocsOfANodeThatIsAway(t *testing.T) {
	for _, jobType := range []string{fleet.JobTypeService, fleet.JobTypeBatch, fleet.JobTypeSystem, fleet.JobTypeSysBatch} {
		for _, pool := range []string{fleet.DisconnectKeep, fleet.DisconnectNomad} {
			for _, end := range []string{"updated", "stopped", "purged"} {
				for _, away := range []fleet.NodeStatus{fleet.NodeDisconnected, fleet.NodeDown} {
					t.Run(fmt.Sprintf("%s, pool %s, %s, %s", jobType, pool, end, away), func(t *testing.T) {
						checkStoppingAllocs(t, jobType, pool, end, away)
					})
				}
			}
		}
	}
}

// checkStoppingAllocs tells three allocations of a job to stop, has one of them confirm that, and cuts the link of
// their node. away is the node's status then.
func checkStoppingAllocs(t *testing.T, jobType, pool, end string, away fleet.NodeStatus) {
	w := newTestHarness(t)
	w.mustApply(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: pool}})
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", jobType, 3))
	ids := w.placeAllocs("shop", id, 3)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	if away == fleet.NodeDisconnected {
		w.addKeptAlloc(id)
	}
	if end != "updated" {
		w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Purge: end == "purged", Now: w.nowNanos()})
	}
	w.stopAllocs(ids...)
	w.reportStatus(id, fleet.ClientComplete, ids[2])
	w.mustApply(state.Evals{Evals: w.completedEvals("shop"), Now: w.nowNanos()})
	w.missHeartbeats(id)
	if n := w.getNode(id); n.Status != away {
		t.Fatalf("the node is %s", n.Status)
	}
	shown := fleet.ClientUnknown
	if pool == fleet.DisconnectNomad {
		shown = fleet.ClientRunning
	}
	w.wantStatus(ids[0], shown, fleet.ClientRunning)
	w.wantStatus(ids[1], shown, fleet.ClientRunning)
	w.wantStatus(ids[2], fleet.ClientComplete, fleet.ClientComplete)
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
	if e := w.openEvalsOf("shop")[0]; e.Type != jobType {
		t.Errorf("the evaluation is for a job of type %s", e.Type)
	}
	w.moveClockForward(time.Minute)
	w.appendJournalRows(id, statusTransition(ids[0], fleet.ClientComplete))
	w.openNextSession(id)
	w.applyRowBatches(w.unappliedBatch(id))
	w.wantStatus(ids[0], fleet.ClientComplete, fleet.ClientComplete)
	w.wantStatus(ids[1], fleet.ClientRunning, fleet.ClientRunning)
}

// A node with a job's allocations waits as disconnected for another allocation, and is down when that is lost: the
// job is evaluated again, also if it was stopped.
func TestStoppingAllocsWhenNothingWaitsAnyMore(t *testing.T) {
	w := newTestHarness(t)
	w.mustApply(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: fleet.DisconnectNomad}})
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeSystem, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.reportStatus(id, fleet.ClientRunning, ids...)
	kept := w.addKeptAlloc(id)
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Now: w.nowNanos()})
	w.stopAllocs(ids...)
	w.missHeartbeats(id)
	w.markAllocsUnknown(kept)
	w.mustApply(state.Evals{Evals: w.completedEvals("shop"), Now: w.nowNanos()})
	w.moveClockForward(time.Hour)
	w.missHeartbeats(id)
	if n := w.getNode(id); n.Status != fleet.NodeDown {
		t.Fatalf("the node is %s", n.Status)
	}
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
}

// A plan that was made before a node went away stops an allocation there: it is unknown at once, except under Nomad's
// rules.
func TestStopOfAStalePlan(t *testing.T) {
	for pool, shown := range map[string]string{fleet.DisconnectKeep: fleet.ClientUnknown, fleet.DisconnectNomad: fleet.ClientRunning} {
		w := newTestHarness(t)
		w.mustApply(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: pool}})
		id := w.addReadyNode("n1")
		w.registerJob(job("shop", fleet.JobTypeService, 1))
		ids := w.placeAllocs("shop", id, 1)
		w.reportStatus(id, fleet.ClientRunning, ids...)
		w.addKeptAlloc(id)
		w.missHeartbeats(id)
		w.stopAllocs(ids...)
		w.wantStatus(ids[0], shown, fleet.ClientRunning)
	}
}

// addKeptAlloc places a running allocation that is kept for an hour under the rules of any pool.
func (w *storeHarness) addKeptAlloc(node fleet.NodeID) fleet.AllocID {
	w.Helper()
	till := job("till", fleet.JobTypeService, 1)
	till.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: ptr(time.Hour)}
	w.registerJob(till)
	ids := w.placeAllocs("till", node, 1)
	w.reportStatus(node, fleet.ClientRunning, ids...)
	return ids[0]
}

// stopAllocs commits a plan that stops allocations.
func (w *storeHarness) stopAllocs(ids ...fleet.AllocID) {
	w.Helper()
	var stopped []fleet.Alloc
	for _, id := range ids {
		a := *w.getAlloc(id)
		a.DesiredStatus, a.DesiredDescription = fleet.DesiredStop, "not wanted"
		stopped = append(stopped, a)
	}
	w.updateAllocs(stopped...)
}

// A stopped allocation of which its edge has said nothing does not become unknown when its node is down: an evaluation makes it
// lost, so that the node can be removed some day.
func TestStopOfAnAllocThatNobodyHeardOf(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", id, 1)
	w.stopAllocs(ids...)
	w.mustApply(state.Evals{Evals: w.completedEvals("shop"), Now: w.nowNanos()})
	w.missHeartbeats(id)
	if n := w.getNode(id); n.Status != fleet.NodeDown {
		t.Fatalf("the node is %s", n.Status)
	}
	w.wantStatus(ids[0], fleet.ClientPending, "")
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
}
