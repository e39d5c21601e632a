package state_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// registerNightly registers a job that is launched by the clock.
func registerNightly(w *storeHarness, prohibitOverlap bool) *fleet.Job {
	j := job("nightly", fleet.JobTypeBatch, 1)
	j.Periodic = &fleet.Periodic{Enabled: true, Spec: "0 2 * * *", ProhibitOverlap: prohibitOverlap}
	w.registerJob(j)
	return w.getJob("nightly")
}

func launchPeriodicJob(w *storeHarness, j *fleet.Job, at time.Time) state.Result {
	return w.applyAndCheck(state.PeriodicLaunch{
		Namespace: j.Namespace, ID: j.ID, JobModifyIndex: j.JobModifyIndex, Launched: at.UnixNano(),
		Child: j.Child(fleet.LaunchID(j.ID, at), w.now), Eval: w.newEvaluation(fleet.TriggerPeriodicJob), Now: w.nowNanos(),
	})
}

func TestATimeIsLaunchedOnce(t *testing.T) {
	w := newTestHarness(t)
	j := registerNightly(w, false)
	if res := launchPeriodicJob(w, j, w.now); res.Err != nil {
		t.Fatal(res.Err)
	}
	if res := launchPeriodicJob(w, j, w.now); fleet.CodeOf(asError(res.Err)) != fleet.CodeConflict {
		t.Errorf("launched twice: %v", res.Err)
	}
}

func TestAJobThatProhibitsOverlapIsNotLaunchedBesideItsChild(t *testing.T) {
	w := newTestHarness(t)
	j := registerNightly(w, true)
	if res := launchPeriodicJob(w, j, w.now); res.Child == "" {
		t.Fatalf("the first time is not launched: %v", res.Err)
	}
	if res := launchPeriodicJob(w, j, w.now.Add(time.Hour)); res.Child != "" {
		t.Errorf("%s is launched beside another child", res.Child)
	}
}

// A watcher of the services hears of an allocation that runs.
func TestAReportedStatusChangesTheServices(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	j := job("shop", fleet.JobTypeService, 1)
	j.TaskGroups[0].Services = []fleet.Service{{Name: "shop", Provider: fleet.ProviderNomad}}
	w.registerJob(j)
	id := w.placeAllocs("shop", node, 1)[0]
	before := w.store.View().TableIndex("services")
	w.reportStatus(node, fleet.ClientRunning, id)
	if w.store.View().TableIndex("services") == before {
		t.Error("the table of services has not changed")
	}
}

// An edge that reboots continues its journal: the number of its applied rows stays.
func TestABootKeepsTheAppliedNumber(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	w.reportStatus(node, fleet.ClientRunning, w.placeAllocs("shop", node, 1)[0])
	w.mustApply(state.SessionOpen{
		NodeID: node, Session: 2, Instance: "i2", BootID: "b2", Hub: "hub-1", Head: 1, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos(),
	})
	if got := w.getNode(node).Applied; got != 1 {
		t.Errorf("applied up to %d, want 1", got)
	}
}
