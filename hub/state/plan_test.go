package state_test

import (
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

func TestPlanPlaces(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	first := w.placeAllocs("shop", node, 1)[0]
	next := w.newAllocOfJob("shop", node)
	next.PreviousAllocation = first
	next.ClientStatus, next.ReportedStatus = fleet.ClientRunning, fleet.ClientRunning // not the hub's to say
	w.mustApply(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(next)}, EvalID: "e1", Now: w.nowNanos()})
	a := w.getAlloc(next.ID)
	if a.ClientStatus != fleet.ClientPending || a.ReportedStatus != "" || a.EvalID != "e1" || a.NodeName != "n1" {
		t.Fatalf("new allocation: %+v", a)
	}
	if a.CreateIndex != w.index || a.AllocModifyIndex != w.index || a.CreateTime != w.nowNanos() {
		t.Fatalf("indexes of a new allocation: %d, %d", a.CreateIndex, a.AllocModifyIndex)
	}
	if prev := w.getAlloc(first); prev.NextAllocation != next.ID || prev.AllocModifyIndex == w.index {
		t.Fatalf("the one that it replaces: next %s, heard of at %d", prev.NextAllocation, prev.AllocModifyIndex)
	}
	if got := w.historyEvents(next.ID); got != "placed" {
		t.Fatalf("history: %s", got)
	}
	h := w.store.View().History(next.ID)[0]
	if h.Message != "placed by a test" || h.Side != fleet.SideHub || !h.Time.Equal(w.now) {
		t.Fatalf("history entry: %+v", h)
	}
	if w.store.View().DesiredIndex(node) != w.index {
		t.Fatal("the edge does not hear of it")
	}
}

func TestPlanRefused(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	for name, change := range map[string]func(*fleet.Alloc){
		"no id":              func(a *fleet.Alloc) { a.ID = "" },
		"no such node":       func(a *fleet.Alloc) { a.NodeID = "nosuch" },
		"no such job":        func(a *fleet.Alloc) { a.JobID = "nosuch" },
		"no such version":    func(a *fleet.Alloc) { a.JobVersion = 3 },
		"no such body":       func(a *fleet.Alloc) { a.JobHash = "00" },
		"no version or hash": func(a *fleet.Alloc) { a.JobVersion, a.JobHash = 3, "" },
	} {
		t.Run(name, func(t *testing.T) {
			a := w.newAllocOfJob("shop", node)
			change(&a)
			w.mustRefuse(fleet.CodeInvalid, state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(a)}})
		})
	}
}

// A plan for an older version of a job starts nothing if it comes after the job was registered again or stopped.
func TestPlanOvertaken(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	before := w.getJob("shop")
	plan := func(j *fleet.Job, a fleet.Alloc) state.Plan {
		return state.Plan{
			Result: fleet.PlanResult{NodeAllocation: byNode(a)}, Now: w.nowNanos(),
			Namespace: j.Namespace, JobID: j.ID, JobModifyIndex: j.JobModifyIndex,
		}
	}
	w.mustApply(plan(before, w.newAllocOfJob("shop", node)))
	old, another := w.newAllocOfJob("shop", node), job("shop", fleet.JobTypeService, 2)
	another.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"}
	w.registerJob(another)
	w.mustRefuse(fleet.CodeConflict, plan(before, old))
	now := w.getJob("shop")
	w.mustApply(plan(now, w.newAllocOfJob("shop", node)))
	next := w.newAllocOfJob("shop", node)
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeConflict, plan(now, next))
}

// A plan may bring the job along, where it was purged meanwhile.
func TestPlanBringsJob(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	a, b, j := w.newAllocOfJob("shop", node), w.newAllocOfJob("shop", node), w.getJob("shop")
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Purge: true, Now: w.nowNanos()})
	w.mustApply(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(a, b)}, Jobs: []*fleet.Job{j}, Now: w.nowNanos()})
	if one, two := w.getAlloc(a.ID), w.getAlloc(b.ID); one.Job == nil || one.Job != two.Job {
		t.Fatal("two allocations of one job do not share its body")
	}
}

// A status that an edge reported after the scheduler looked wins over the status that the plan concluded.
func TestPlanDoesNotOverwriteReports(t *testing.T) {
	for _, c := range []struct {
		name     string
		reported string // before the plan is applied
		back     bool   // the node is ready again
		plan     string
		want     string
		settled  bool // AllocStates took the conclusion
	}{
		{"unknown", "", false, fleet.ClientUnknown, fleet.ClientUnknown, true},
		{"lost", "", false, fleet.ClientLost, fleet.ClientLost, true},
		{"unknown, node is back", "", true, fleet.ClientUnknown, fleet.ClientRunning, false},
		{"lost, node is back", "", true, fleet.ClientLost, fleet.ClientRunning, false},
		{"unknown, but complete", fleet.ClientComplete, true, fleet.ClientUnknown, fleet.ClientComplete, false},
		{"lost, but failed", fleet.ClientFailed, true, fleet.ClientLost, fleet.ClientFailed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTestHarness(t)
			node := w.addReadyNode("n1")
			w.registerJob(job("shop", fleet.JobTypeService, 1))
			ids := w.placeAllocs("shop", node, 1)
			w.reportStatus(node, fleet.ClientRunning, ids...)
			w.missHeartbeats(node)
			plan := w.allocsWithStatus(c.plan, ids...)
			if c.back {
				w.openNextSession(node)
			}
			if c.reported != "" {
				w.reportStatus(node, c.reported, ids...)
			}
			w.updateAllocs(plan...)
			a := w.getAlloc(ids[0])
			if a.ClientStatus != c.want || (len(a.AllocStates) == 1) != c.settled {
				t.Fatalf("%s with states %v, want %s", a.ClientStatus, a.AllocStates, c.want)
			}
			if stop := c.plan == fleet.ClientLost; a.ServerTerminal() != stop {
				t.Fatalf("desired %s", a.DesiredStatus)
			}
		})
	}
}

func TestPlanStopsOnce(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", node, 1)
	w.reportStatus(node, fleet.ClientRunning, ids...)
	run := *w.getAlloc(ids[0])
	stop := run
	stop.DesiredStatus, stop.DesiredDescription = fleet.DesiredStop, "count went down"
	w.updateAllocs(stop)
	told := w.getAlloc(ids[0]).AllocModifyIndex
	if told != w.index {
		t.Fatal("the edge does not hear of a stop")
	}
	w.updateAllocs(run) // made before the stop
	a := w.getAlloc(ids[0])
	if a.DesiredStatus != fleet.DesiredStop || a.DesiredDescription != "count went down" || a.AllocModifyIndex != told {
		t.Fatalf("after an older plan: %s (%s)", a.DesiredStatus, a.DesiredDescription)
	}
	if got := w.historyEvents(ids[0]); got != "placed, running, stop" {
		t.Fatalf("history: %s", got)
	}
}

// TestRetired retires an allocation that ended by itself: it keeps its desired status, and stays
// retired. An allocation that runs, which the plan did not know, or that runs again is stopped.
func TestRetired(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	ids := w.placeAllocs("shop", node, 2)
	w.reportStatus(node, fleet.ClientRunning, ids...)
	w.reportStatus(node, fleet.ClientComplete, ids[0])
	ended, runs := *w.getAlloc(ids[0]), *w.getAlloc(ids[1])
	for _, a := range []fleet.Alloc{ended, runs} {
		a.Retired, a.DesiredDescription = true, "not needed"
		w.updateAllocs(a)
	}
	w.updateAllocs(ended) // made before
	a := w.getAlloc(ids[0])
	if !a.Retired || a.DesiredStatus != fleet.DesiredRun || a.ClientStatus != fleet.ClientComplete || a.AllocModifyIndex == ended.AllocModifyIndex {
		t.Errorf("retired: %v, to %s, %s", a.Retired, a.DesiredStatus, a.ClientStatus)
	}
	if got := w.historyEvents(ids[0]); got != "placed, running, complete, retired" {
		t.Errorf("history: %s", got)
	}
	if got := w.getAlloc(ids[1]).DesiredStatus; got != fleet.DesiredStop {
		t.Errorf("what runs is to %s", got)
	}
	w.reportStatus(node, fleet.ClientRunning, ids[0])
	if a := w.getAlloc(ids[0]); a.DesiredStatus != fleet.DesiredStop || a.AllocModifyIndex != w.index {
		t.Errorf("what runs again is to %s", a.DesiredStatus)
	}
}

func TestPlanInPlace(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	ids := w.placeAllocs("shop", node, 1)
	w.registerJob(job("shop", fleet.JobTypeService, 3))
	j := w.getJob("shop")
	a := *w.getAlloc(ids[0])
	a.JobVersion, a.JobHash, a.FollowupEvalID = j.Version, j.SpecHash, "f1"
	w.updateAllocs(a)
	got := w.getAlloc(ids[0])
	if got.Job.TaskGroups[0].Count != 3 || got.AllocModifyIndex != w.index || got.FollowupEvalID != "f1" {
		t.Fatalf("updated in place: %+v", got)
	}
	if got := w.historyEvents(ids[0]); got != "placed, updated in place" {
		t.Fatalf("history: %s", got)
	}
}

// An allocation that is committed on a node which went away since it was chosen
// gets an evaluation: those of that moment did not know of it.
func TestPlanOntoNodeThatLeft(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	a := w.newAllocOfJob("shop", node)
	w.missHeartbeats(node)
	w.mustApply(state.Evals{Evals: w.completedEvals("shop")})
	w.mustApply(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(a)}, EvalID: "e1", Now: w.nowNanos()})
	w.wantEvals("shop", fleet.TriggerNodeUpdate)
}

func TestAllocStop(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 3))
	ids := w.placeAllocs("shop", node, 3)
	w.reportStatus(node, fleet.ClientComplete, ids[2])
	w.mustApply(state.Evals{Evals: w.completedEvals("shop")})
	w.mustRefuse(fleet.CodeNotFound, state.AllocStop{Allocs: []fleet.AllocID{ids[0], "nosuch"}, Now: w.nowNanos()})
	if res := w.mustApply(state.AllocStop{Allocs: ids[2:], EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()}); res.Eval != "" {
		t.Fatal("stopping what is over was evaluated")
	}
	res := w.mustApply(state.AllocStop{Allocs: ids, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.wantEvals("shop", fleet.TriggerAllocStop)
	if e, ok := w.store.View().Eval(res.Eval); !ok || e.JobID != "shop" {
		t.Fatalf("evaluation %s", res.Eval)
	}
	a := w.getAlloc(ids[0])
	if !a.DesiredTransition.Migrate || a.AllocModifyIndex == w.index {
		t.Fatalf("flagged: %+v, heard of at %d", a.DesiredTransition, a.AllocModifyIndex)
	}
	// A plan that was made before the flag does not take it away.
	b := *a
	b.DesiredTransition = fleet.DesiredTransition{}
	w.updateAllocs(b)
	if !w.getAlloc(ids[0]).DesiredTransition.Migrate {
		t.Fatal("the flag is gone")
	}
}

// A stop flags the allocation for rescheduling where it asks for that, and a later stop keeps
// the flag.
func TestAllocStopThatReschedules(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	ids := w.placeAllocs("shop", node, 2)
	w.reportStatus(node, fleet.ClientRunning, ids...)
	w.mustApply(state.AllocStop{Allocs: ids[:1], EvalSeed: w.nextEvalSeed(), Now: w.nowNanos(), Reschedule: true})
	w.mustApply(state.AllocStop{Allocs: ids, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	for i, want := range []bool{true, false} {
		if d := w.getAlloc(ids[i]).DesiredTransition; !d.Migrate || d.Reschedule != want {
			t.Errorf("allocation %d: %+v", i, d)
		}
	}
}

// A stop without the shutdown_delay is kept until the edge has made it: it is told when the
// plan stops the allocation, and told again where it is stopping already.
func TestStopsWithoutTheirDelay(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 4))
	ids := w.placeAllocs("shop", node, 4)
	w.reportStatus(node, fleet.ClientRunning, ids...)
	check := func(what string, want ...bool) {
		t.Helper()
		for i, id := range ids {
			if got := w.getAlloc(id).DesiredTransition.NoShutdownDelay; got != want[i] {
				t.Fatalf("%s: allocation %d: %t", what, i, got)
			}
		}
	}
	stop := func(id fleet.AllocID) {
		a := *w.getAlloc(id)
		a.DesiredStatus, a.DesiredTransition = fleet.DesiredStop, fleet.DesiredTransition{}
		w.updateAllocs(a)
	}
	w.mustApply(state.AllocStop{Allocs: ids[:1], EvalSeed: w.nextEvalSeed(), Now: w.nowNanos(), NoShutdownDelay: true})
	w.mustApply(state.AllocStop{Allocs: ids[:1], EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	check("one of them", true, false, false, false)
	if w.getAlloc(ids[0]).AllocModifyIndex == w.index {
		t.Fatal("its edge hears of it before it is stopped")
	}
	stop(ids[0])
	check("stopped by a plan that does not know", true, false, false, false)
	if w.getAlloc(ids[0]).AllocModifyIndex != w.index {
		t.Fatal("its edge does not hear of the stop")
	}

	stop(ids[1])
	res := w.mustApply(state.AllocStop{Allocs: ids[1:2], EvalSeed: w.nextEvalSeed(), Now: w.nowNanos(), NoShutdownDelay: true})
	check("one that stops already", true, true, false, false)
	if res.Eval != "" || w.getAlloc(ids[1]).AllocModifyIndex != w.index {
		t.Fatalf("its edge does not hear of it: %+v", res)
	}
	w.mustApply(state.AllocStop{Allocs: ids[1:2], EvalSeed: w.nextEvalSeed(), Now: w.nowNanos(), NoShutdownDelay: true})
	if w.getAlloc(ids[1]).AllocModifyIndex == w.index {
		t.Fatal("its edge hears of it twice")
	}

	w.reportStatus(node, fleet.ClientComplete, ids[2])
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Now: w.nowNanos()})
	check("the job, with its delay", true, true, false, false)
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Now: w.nowNanos(), NoShutdownDelay: true})
	check("the job, but what has ended", true, true, false, true)
	w.registerJob(job("shop", fleet.JobTypeService, 4))
	check("the job runs again", true, true, false, false)
	w.mustApply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "shop", Purge: true, Now: w.nowNanos(), NoShutdownDelay: true})
	check("the job is purged", true, true, false, true)
}

func TestEvals(t *testing.T) {
	w := newTestHarness(t)
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	e := *w.openEvalsOf("shop")[0]
	if e.JobModifyIndex != 1 || e.Priority != 50 || e.Type != fleet.JobTypeService || e.CreateIndex != 1 {
		t.Fatalf("evaluation of a registration: %+v", e)
	}
	blocked := fleet.Evaluation{ID: "b1", Namespace: "default", JobID: "shop", Status: fleet.EvalBlocked}
	w.mustApply(state.Evals{Evals: []fleet.Evaluation{blocked}, Now: w.nowNanos()})
	w.mustRefuse(fleet.CodeInvalid, state.Evals{Evals: []fleet.Evaluation{{JobID: "shop"}}})
	w.mustRefuse(fleet.CodeConflict, state.EvalDelete{IDs: []fleet.EvalID{e.ID}})

	// Failed placements leave the older one blocked, success ends it (E26).
	e.Status = fleet.EvalComplete
	e.FailedTGAllocs = map[string]*fleet.AllocMetric{"web": {NodesEvaluated: 1}}
	w.mustApply(state.Evals{Evals: []fleet.Evaluation{e}, Now: w.nowNanos()})
	w.wantEvals("shop", "")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	done := *w.openEvalsOf("shop")[len(w.openEvalsOf("shop"))-1]
	for _, o := range w.openEvalsOf("shop") {
		if o.Status == fleet.EvalPending {
			done = *o
		}
	}
	done.Status = fleet.EvalComplete
	w.mustApply(state.Evals{Evals: []fleet.Evaluation{done}, Now: w.nowNanos()})
	if b, _ := w.store.View().Eval("b1"); b.Status != fleet.EvalCanceled || b.StatusDescription == "" {
		t.Fatalf("blocked evaluation is %s", b.Status)
	}
	// An evaluation that is over stays over.
	done.Status = fleet.EvalPending
	w.mustApply(state.Evals{Evals: []fleet.Evaluation{done}, Now: w.nowNanos()})
	w.wantEvals("shop")

	var since []fleet.EvalID
	for e := range w.store.View().EvalsSince(1) {
		since = append(since, e.ID)
	}
	if len(since) != 3 {
		t.Fatalf("changed since 1: %v", since)
	}
	w.mustApply(state.EvalDelete{IDs: []fleet.EvalID{done.ID, "nosuch"}})
	if _, ok := w.store.View().Eval(done.ID); ok {
		t.Fatal("a deleted evaluation is there")
	}
}
