package state_test

import (
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// A collector removes only allocations, evaluations and deployments that are still over.
func TestCollectLeavesWhatIsInUse(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("runs", fleet.JobTypeService, 1))
	w.registerJob(job("done", fleet.JobTypeBatch, 1))
	runs, done := w.placeAllocs("runs", node, 1)[0], w.placeAllocs("done", node, 1)[0]
	w.reportStatus(node, fleet.ClientRunning, runs, done)
	w.reportStatus(node, fleet.ClientComplete, done)
	over := w.completedEvals("runs")
	pending, complete := w.newEvaluation(fleet.TriggerNodeUpdate), w.newEvaluation(fleet.TriggerNodeUpdate)
	pending.Namespace, pending.JobID = fleet.DefaultNamespace, "runs"
	complete.Namespace, complete.JobID = fleet.DefaultNamespace, "runs"
	complete.Status = fleet.EvalComplete
	w.mustApply(state.Evals{Evals: append(over, *complete), Now: w.nowNanos()})
	active := w.startDeployment("runs", nil) // which ends the job's evaluations
	w.mustApply(state.Evals{Evals: []fleet.Evaluation{*pending}, Now: w.nowNanos()})
	w.mustApply(state.Collect{
		Allocs: []fleet.AllocID{runs, done, "none"}, Evals: []fleet.EvalID{pending.ID, complete.ID, "none"},
		Deployments: []fleet.DeploymentID{active.ID, "none"}, Now: w.nowNanos(),
	})
	v := w.store.View()
	for id, want := range map[fleet.AllocID]bool{runs: true, done: false} {
		if _, ok := v.Alloc(id); ok != want {
			t.Errorf("allocation %s is there: %t, want %t", id, ok, want)
		}
	}
	for id, want := range map[fleet.EvalID]bool{pending.ID: true, complete.ID: false} {
		if _, ok := v.Eval(id); ok != want {
			t.Errorf("evaluation %s is there: %t, want %t", id, ok, want)
		}
	}
	w.getDeployment(active.ID)
	w.mustApply(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: active.ID, Status: fleet.DeploymentFailed}, Now: w.nowNanos()})
	w.mustApply(state.Collect{Deployments: []fleet.DeploymentID{active.ID}, Now: w.nowNanos()})
	if _, ok := w.store.View().Deployment(active.ID); ok {
		t.Error("a deployment that is over is there still")
	}
}

// A node is collected where it is down, has no allocation, and has had no session since the
// collector looked.
func TestCollectOfNodes(t *testing.T) {
	w := newTestHarness(t)
	ready, back, used, down := w.addReadyNode("ready"), w.addReadyNode("back"), w.addReadyNode("used"), w.addReadyNode("down")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	w.placeAllocs("shop", used, 1)
	w.missHeartbeats(back, used, down)
	var seen []state.CollectedNode
	for _, id := range []fleet.NodeID{ready, back, used, down} {
		seen = append(seen, state.CollectedNode{ID: id, Epoch: w.getNode(id).Epoch})
	}
	w.openNextSession(back)
	w.missHeartbeats(back) // down again, of another session
	w.mustApply(state.Collect{Nodes: append(seen, state.CollectedNode{ID: "none", Epoch: 1}), Now: w.nowNanos()})
	for id, want := range map[fleet.NodeID]bool{ready: true, back: true, used: true, down: false} {
		if _, ok := w.store.View().Node(id); ok != want {
			t.Errorf("node %s is there: %t, want %t", id, ok, want)
		}
	}
}

// A job is collected if it is dead, has not changed since the collector looked, and has no allocation, evaluation or
// deployment left.
func TestCollectOfJobs(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	jobs := []fleet.JobID{"runs", "changed", "open", "used", "dead"}
	var seen []state.CollectedJob
	for _, id := range jobs {
		j := job(id, fleet.JobTypeBatch, 1)
		if id == "runs" {
			j.ParameterizedJob = &fleet.ParameterizedJob{} // which waits to be dispatched
		}
		w.registerJob(j)
		if id == "used" {
			w.reportStatus(node, fleet.ClientComplete, w.placeAllocs(id, node, 1)...)
		}
		if id != "runs" {
			w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: id, Now: w.nowNanos()})
		}
		w.mustApply(state.Evals{Evals: w.completedEvals(id), Now: w.nowNanos()})
		if id == "open" {
			e := w.newEvaluation(fleet.TriggerNodeUpdate)
			e.Namespace, e.JobID = fleet.DefaultNamespace, id
			w.mustApply(state.Evals{Evals: []fleet.Evaluation{*e}, Now: w.nowNanos()})
		}
		modified := w.getJob(id).ModifyIndex
		if id == "changed" {
			modified--
		}
		seen = append(seen, state.CollectedJob{Namespace: fleet.DefaultNamespace, ID: id, ModifyIndex: modified})
	}
	w.mustApply(state.Collect{Jobs: append(seen, state.CollectedJob{Namespace: fleet.DefaultNamespace, ID: "none"}), Now: w.nowNanos()})
	for _, id := range jobs {
		if _, ok := w.store.View().Job(fleet.DefaultNamespace, id); ok != (id != "dead") {
			t.Errorf("job %s is there: %t", id, ok)
		}
	}
}
