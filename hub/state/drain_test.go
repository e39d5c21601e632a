package state_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

func (w *storeHarness) startNodeDrain(id fleet.NodeID, deadline time.Duration) state.Result {
	w.Helper()
	return w.mustApply(state.NodeDrain{NodeID: id, Drain: fleet.NewDrain(deadline, false, w.now), EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
}

func (w *storeHarness) cancelNodeDrain(id fleet.NodeID, eligible bool) state.Result {
	w.Helper()
	return w.mustApply(state.NodeDrain{NodeID: id, MarkEligible: eligible, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
}

func (w *storeHarness) nodeEventMessages(id fleet.NodeID) []string {
	var out []string
	for _, e := range w.getNode(id).Events {
		out = append(out, e.Message)
	}
	return out
}

func TestDrainKeepsWhenItBegan(t *testing.T) {
	w := newTestHarness(t)
	n := w.addReadyNode("a")
	began := w.now
	w.startNodeDrain(n, 10*time.Second)
	got := w.getNode(n)
	if s := got.DrainStrategy; s == nil || !s.ForceDeadline.Equal(began.Add(10*time.Second)) || !s.StartedAt.Equal(began) {
		t.Fatalf("H1: the strategy is %+v", s)
	}
	if got.SchedulingEligibility != fleet.NodeIneligible || got.LastDrain.Status != fleet.DrainDraining {
		t.Fatalf("H1: the node is %s, its last drain %+v", got.SchedulingEligibility, got.LastDrain)
	}
	w.moveClockForward(5 * time.Second)
	w.startNodeDrain(n, time.Minute)
	got = w.getNode(n)
	if !got.DrainStrategy.StartedAt.Equal(began) || !got.LastDrain.StartedAt.Equal(began) || !got.LastDrain.UpdatedAt.Equal(w.now) {
		t.Fatalf("H1: extended to %+v, %+v", got.DrainStrategy, got.LastDrain)
	}
	before := got.ModifyIndex
	w.startNodeDrain(n, time.Minute)
	if again := w.getNode(n); again.ModifyIndex != before || len(again.Events) != len(got.Events) {
		t.Fatalf("H1: the same once more changed the node: %v", w.nodeEventMessages(n))
	}
}

func TestDrainEnds(t *testing.T) {
	for _, tc := range []struct {
		row      string
		end      func(w *storeHarness, n fleet.NodeID) state.Result
		status   string
		eligible string
		evals    int
		detail   string
	}{
		{"H1 complete", func(w *storeHarness, n fleet.NodeID) state.Result { return w.finishNodeDrain(n, false) }, fleet.DrainComplete, fleet.NodeIneligible, 0, ""},
		{"H4 at its deadline", func(w *storeHarness, n fleet.NodeID) state.Result { return w.finishNodeDrain(n, true) }, fleet.DrainComplete, fleet.NodeIneligible, 0, "true"},
		{"H1 canceled", func(w *storeHarness, n fleet.NodeID) state.Result { return w.cancelNodeDrain(n, false) }, fleet.DrainCanceled, fleet.NodeIneligible, 0, ""},
		{"H1 canceled and eligible", func(w *storeHarness, n fleet.NodeID) state.Result { return w.cancelNodeDrain(n, true) }, fleet.DrainCanceled, fleet.NodeEligible, 1, ""},
	} {
		t.Run(tc.row, func(t *testing.T) {
			w := newTestHarness(t)
			n := w.addReadyNode("a")
			w.registerJob(job("sys", fleet.JobTypeSystem, 1))
			w.registerJob(job("web", fleet.JobTypeService, 1))
			w.startNodeDrain(n, time.Hour)
			w.moveClockForward(time.Minute)
			res := tc.end(w, n)
			got := w.getNode(n)
			if got.DrainStrategy != nil || got.LastDrain.Status != tc.status || got.SchedulingEligibility != tc.eligible || len(res.Evals) != tc.evals {
				t.Fatalf("%+v, last drain %+v, %s, %d evaluations", got.DrainStrategy, got.LastDrain, got.SchedulingEligibility, len(res.Evals))
			}
			if !got.LastDrain.UpdatedAt.Equal(w.now) || got.LastDrain.UpdatedAt.Equal(got.LastDrain.StartedAt) {
				t.Fatalf("the last drain is %+v", got.LastDrain)
			}
			if d := got.Events[len(got.Events)-1].Details[state.DetailDrainOverdue]; d != tc.detail {
				t.Fatalf("the last event is %+v", got.Events[len(got.Events)-1])
			}
			index := got.ModifyIndex
			w.cancelNodeDrain(n, tc.eligible == fleet.NodeEligible)
			if again := w.getNode(n); again.ModifyIndex != index {
				t.Fatalf("ended once more, the node has changed: %v", w.nodeEventMessages(n))
			}
		})
	}
}

// finishNodeDrain does what the drainer does at the end.
func (w *storeHarness) finishNodeDrain(n fleet.NodeID, overdue bool) state.Result {
	w.Helper()
	s := w.getNode(n).DrainStrategy
	return w.mustApply(state.DrainStep{Done: []state.NodeDrained{{
		NodeID: n, StartedAt: s.StartedAt, ForceDeadline: s.ForceDeadline, Deadlined: overdue,
	}}, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
}

func TestDrainStepLeavesOutWhatChanged(t *testing.T) {
	w := newTestHarness(t)
	n, other := w.addReadyNode("a"), w.addReadyNode("b")
	w.registerJob(job("web", fleet.JobTypeService, 3))
	ids := w.placeAllocs("web", n, 2)
	elsewhere := w.placeAllocs("web", other, 1)
	w.startNodeDrain(n, time.Hour)
	old := w.getNode(n).DrainStrategy
	w.startNodeDrain(n, 2*time.Hour)
	w.reportStatus(n, fleet.ClientFailed, ids[1])
	w.updateAllocs(w.allocsToStop(ids[1])...)
	w.mustApply(state.DrainStep{
		Migrate: append(ids, elsewhere[0], "nobody"), EvalSeed: w.nextEvalSeed(), Now: w.nowNanos(),
		Done: []state.NodeDrained{{NodeID: n, StartedAt: old.StartedAt, ForceDeadline: old.ForceDeadline, Deadlined: true}, {NodeID: "none"}},
	})
	if w.getNode(n).DrainStrategy == nil {
		t.Fatal("a drain that was given more time was ended")
	}
	for id, want := range map[fleet.AllocID]bool{ids[0]: true, ids[1]: false, elsewhere[0]: false} {
		if got := w.getAlloc(id).DesiredTransition.Migrate; got != want {
			t.Errorf("allocation %s: migrates %v, want %v", id, got, want)
		}
	}
	w.wantEvals("web", fleet.TriggerNodeDrain)
	w.placeAllocs("web", n, 1) // by a planner that looked before the drain
	w.wantEvals("web", fleet.TriggerNodeDrain)
}

func (w *storeHarness) allocsToStop(ids ...fleet.AllocID) []fleet.Alloc {
	var out []fleet.Alloc
	for _, id := range ids {
		a := *w.getAlloc(id)
		a.DesiredStatus = fleet.DesiredStop
		out = append(out, a)
	}
	return out
}

func TestEligibility(t *testing.T) {
	w := newTestHarness(t)
	n := w.addReadyNode("a")
	w.registerJob(job("sys", fleet.JobTypeSystem, 1))
	w.registerJob(job("web", fleet.JobTypeService, 1))
	set := func(to string) state.Result {
		return w.mustApply(state.NodeEligibility{NodeID: n, Eligibility: to, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	}
	if res := set(fleet.NodeIneligible); len(res.Evals) != 0 || w.getNode(n).SchedulingEligibility != fleet.NodeIneligible {
		t.Fatalf("H2: ineligible gave %d evaluations, the node is %s", len(res.Evals), w.getNode(n).SchedulingEligibility)
	}
	if res := set(fleet.NodeEligible); len(res.Evals) != 1 {
		t.Fatalf("H2: eligible gave %d evaluations", len(res.Evals))
	}
	events := w.nodeEventMessages(n)
	if want := "Node marked as eligible for scheduling"; events[len(events)-1] != want {
		t.Fatalf("H2: events are %v", events)
	}
	w.startNodeDrain(n, 0)
	w.mustRefuse(fleet.CodeConflict, state.NodeEligibility{NodeID: n, Eligibility: fleet.NodeEligible, Now: w.nowNanos()})
}

func TestPurgeGivesUpWhatANodeHad(t *testing.T) {
	w := newTestHarness(t)
	n := w.addReadyNode("a")
	w.registerJob(job("web", fleet.JobTypeService, 1))
	ids := w.placeAllocs("web", n, 2)
	w.reportStatus(n, fleet.ClientRunning, ids...)
	w.mustRefuse(fleet.CodeConflict, state.NodePurge{NodeID: n, Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeNotFound, state.NodePurge{NodeID: "none", Now: w.nowNanos()})
	w.missHeartbeats(n)
	w.markAllocsUnknown(ids...)
	if res := w.mustApply(state.NodePurge{NodeID: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()}); len(res.Evals) != 1 {
		t.Fatalf("purging gave %d evaluations", len(res.Evals))
	}
	w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, ids...)...)
	w.wantStatus(ids[0], fleet.ClientLost, fleet.ClientRunning)
	if _, ok := w.store.View().Node(n); ok {
		t.Fatal("the node is still there")
	}
	// It comes back after all, as a node that nobody knew.
	w.edges[n] = &edge{session: w.edges[n].session}
	w.mustApply(state.NodeRegister{Node: description(n, "a"), Now: w.nowNanos()})
	w.openNextSession(n)
	if got := w.getNode(n); got.Status != fleet.NodeReady || got.Epoch != 1 {
		t.Fatalf("back as %+v", got)
	}
	w.reportStatus(n, fleet.ClientComplete, ids...)
	w.wantStatus(ids[0], fleet.ClientComplete, fleet.ClientComplete)
}

func TestNodeEvaluate(t *testing.T) {
	w := newTestHarness(t)
	n := w.addReadyNode("a")
	w.registerJob(job("sys", fleet.JobTypeSystem, 1))
	w.registerJob(job("web", fleet.JobTypeService, 1))
	w.registerJob(job("other", fleet.JobTypeService, 1))
	w.placeAllocs("web", n, 2)
	if res := w.mustApply(state.NodeEvaluate{NodeID: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()}); len(res.Evals) != 2 {
		t.Fatalf("%d evaluations, want those of sys and web", len(res.Evals))
	}
	w.mustRefuse(fleet.CodeNotFound, state.NodeEvaluate{NodeID: "none", Now: w.nowNanos()})
}
