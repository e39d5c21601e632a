package state_test

import (
	"bytes"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// AwaitingEvals lists the evaluations for which room is being made, also after a restart. When an evaluation awaits a
// node no longer, because it says so or has ended, capacity appears there for the allocation that gave way.
func TestAwaitedRoom(t *testing.T) {
	w := newTestHarness(t)
	a, b := w.addReadyNode("n1"), w.addReadyNode("n2")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	e := fleet.Evaluation{ID: "b1", Namespace: "default", JobID: "shop", Status: fleet.EvalBlocked}
	put := func(status string, nodes ...fleet.NodeID) (appeared bool) {
		t.Helper()
		e.Status, e.AwaitedNodes = status, nodes
		w.mustApply(state.Evals{Evals: []fleet.Evaluation{e}, Now: w.nowNanos()})
		for range w.store.View().CapacitySince(w.index - 1) {
			appeared = true
		}
		return appeared
	}
	awaiting := func(s *state.Store) (n int) {
		for e := range s.View().AwaitingEvals() {
			n += len(e.AwaitedNodes)
		}
		return n
	}
	if put(fleet.EvalBlocked, min(a, b), max(a, b)) || awaiting(w.store) != 2 {
		t.Errorf("room is made at two nodes: %d listed, or capacity appeared", awaiting(w.store))
	}
	restored := state.New()
	if err := restored.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	if n := awaiting(restored); n != 2 {
		t.Errorf("after a restart %d are listed", n)
	}
	if put(fleet.EvalPending, min(a, b), max(a, b)) {
		t.Error("nothing lapsed, and capacity appeared")
	}
	if !put(fleet.EvalBlocked, max(a, b)) || awaiting(w.store) != 1 {
		t.Error("one node is awaited no longer, and nobody is told")
	}
	if !put(fleet.EvalComplete, max(a, b)) || awaiting(w.store) != 0 {
		t.Error("the evaluation is over, and nobody is told")
	}
}
