package collector_test

import (
	"fmt"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/collector"
)

// TestChoose is row H20: what goes, and what never does.
func TestChoose(t *testing.T) {
	hour, day := time.Hour, 24*time.Hour
	type want struct{ allocs, evals, jobs, nodes int }
	for _, tc := range []struct {
		name  string
		make  func(w *harness)
		after time.Duration // since make
		want  want
	}{
		{"H20 an evaluation that is over is kept for an hour", func(w *harness) {
			w.placeRunning("web", fleet.JobTypeService)
			w.addCompletedEval("web")
		}, hour - time.Minute, want{}},
		{"H20 and then goes, but not that of an allocation that runs", func(w *harness) {
			w.placeRunning("web", fleet.JobTypeService)
			w.addCompletedEval("web")
		}, hour, want{evals: 1}},
		{"H20 a stopped allocation goes with its evaluation", func(w *harness) {
			w.stopAlloc(w.placeRunning("web", fleet.JobTypeService))
		}, hour, want{allocs: 1, evals: 1}},
		{"H20 batch is kept for a day", func(w *harness) {
			w.stopAlloc(w.placeRunning("nightly", fleet.JobTypeBatch))
			w.placeRunning("nightly", fleet.JobTypeBatch) // so that it is not dead
		}, day - time.Minute, want{}},
		{"H20 and then goes", func(w *harness) {
			w.stopAlloc(w.placeRunning("nightly", fleet.JobTypeBatch))
			w.placeRunning("nightly", fleet.JobTypeBatch)
		}, day, want{allocs: 1, evals: 1}},
		{"H20 an evaluation that is not over stays", func(w *harness) {
			w.registerTestJob("web", fleet.JobTypeService, false)
		}, 100 * day, want{}},
		{"H20 an unknown allocation never goes, nor its job and node", func(w *harness) {
			w.placeRunning("web", fleet.JobTypeService)
			w.loseAndCheckNode(false)
			w.deregisterJob("web")
		}, 400 * day, want{evals: 2}},
		{"H20 a failure that may be replaced stays", func(w *harness) {
			w.reportTaskStatus(w.placeRunning("web", fleet.JobTypeService), fleet.ClientFailed)
		}, 400 * day, want{evals: 1}},
		{"H20 a failure that was replaced goes", func(w *harness) {
			a := w.placeRunning("web", fleet.JobTypeService)
			w.reportTaskStatus(a, fleet.ClientFailed)
			w.setDesiredStatus(a, fleet.DesiredStop)
			w.placeRunning("web", fleet.JobTypeService)
		}, hour, want{allocs: 1, evals: 2}},
		{"H20 a failure of a stopped job goes", func(w *harness) {
			w.reportTaskStatus(w.placeRunning("web", fleet.JobTypeService), fleet.ClientFailed)
			w.deregisterJob("web")
		}, hour, want{allocs: 1, evals: 3}},
		{"H20 a success of a batch job that is not over is not forgotten", func(w *harness) {
			w.reportTaskStatus(w.placeRunning("nightly", fleet.JobTypeBatch), fleet.ClientComplete)
			w.placeRunning("nightly", fleet.JobTypeBatch)
		}, 400 * day, want{}},
		{"I8 a batch job that was done after the hub had given it up is not forgotten", func(w *harness) {
			a := w.placeRunning("nightly", fleet.JobTypeBatch)
			w.loseAndCheckNode(false)
			w.setDesiredStatus(a, fleet.DesiredStop)
			w.setClientStatus(a, fleet.ClientLost)
			w.openSession(nodeID)
			w.reportTaskStatus(a, fleet.ClientComplete)
			w.placeRunning("nightly", fleet.JobTypeBatch)
		}, 400 * day, want{evals: 1}},
		{"H20 what ended by itself is forgotten when it is retired", func(w *harness) {
			w.reportTaskStatus(w.placeRunning("web", fleet.JobTypeService), fleet.ClientComplete)
			a := w.placeRunning("web", fleet.JobTypeService)
			w.reportTaskStatus(a, fleet.ClientComplete)
			w.changeAlloc(a, func(a *fleet.Alloc) { a.Retired = true })
		}, hour, want{allocs: 1, evals: 3}},
		{"H20 a dead job goes after 4 hours, with all of it", func(w *harness) {
			w.reportTaskStatus(w.placeRunning("nightly", fleet.JobTypeBatch), fleet.ClientComplete)
		}, 4 * hour, want{allocs: 1, evals: 1, jobs: 1}},
		{"H20 and not before", func(w *harness) {
			w.reportTaskStatus(w.placeRunning("nightly", fleet.JobTypeBatch), fleet.ClientComplete)
		}, 4*hour - time.Minute, want{}},
		{"H20 a service goes only when it was stopped", func(w *harness) {
			w.stopAlloc(w.placeRunning("web", fleet.JobTypeService))
			w.deregisterJob("web")
		}, 4 * hour, want{allocs: 1, evals: 2, jobs: 1}},
		{"H20 a node that is down goes after a day", func(w *harness) { w.loseAndCheckNode(true) }, day, want{nodes: 1}},
		{"H20 and not before", func(w *harness) { w.loseAndCheckNode(true) }, day - time.Minute, want{}},
		{"H20 not with an allocation that may still run there", func(w *harness) {
			a := w.placeRunning("web", fleet.JobTypeService)
			w.loseAndCheckNode(false)
			w.setDesiredStatus(a, fleet.DesiredStop)
			w.setClientStatus(a, fleet.ClientLost)
			w.loseAndCheckNode(true)
			w.deregisterJob("web")
		}, 400 * day, want{evals: 2}},
		{"H20 that one goes when the node is purged", func(w *harness) {
			a := w.placeRunning("web", fleet.JobTypeService)
			w.loseAndCheckNode(false)
			w.purgeNode()
			w.setDesiredStatus(a, fleet.DesiredStop)
			w.setClientStatus(a, fleet.ClientLost)
			w.deregisterJob("web")
		}, 400 * day, want{allocs: 1, evals: 4, jobs: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newHarness(t)
			tc.make(w)
			w.now = w.now.Add(tc.after)
			c := collector.Choose(w.View(), w.now, collector.Defaults())
			if got := (want{len(c.Allocs), len(c.Evals), len(c.Jobs), len(c.Nodes)}); got != tc.want {
				t.Fatalf("chosen %+v, want %+v\n%s", got, tc.want, w.describeState())
			}
			for _, cmd := range c.Commands(1) {
				w.mustApplyEncoded(cmd)
			}
			if again := collector.Choose(w.View(), w.now, collector.Defaults()); !again.Empty() {
				t.Errorf("chosen again: %+v", again)
			}
		})
	}
}

func TestCommandsAreBounded(t *testing.T) {
	c := collector.Choice{}
	for i := range 25 {
		c.Allocs = append(c.Allocs, fleet.AllocID(fmt.Sprint(i)))
		c.Evals = append(c.Evals, fleet.EvalID(fmt.Sprint(i)))
	}
	cmds := c.Commands(10)
	if len(cmds) != 5 {
		t.Fatalf("%d entries", len(cmds))
	}
	allocs, evals := 0, 0
	for _, cmd := range cmds {
		if n := len(cmd.Allocs) + len(cmd.Evals); n != 10 {
			t.Errorf("%d in one entry", n)
		}
		if allocs < 25 && evals > 0 {
			t.Error("an evaluation goes before an allocation")
		}
		allocs, evals = allocs+len(cmd.Allocs), evals+len(cmd.Evals)
	}
	if allocs != 25 || evals != 25 {
		t.Errorf("%d allocations and %d evaluations", allocs, evals)
	}
}

// runCollection makes one pass.
func (w *harness) runCollection() {
	w.Helper()
	c := collector.Choose(w.View(), w.now, collector.Defaults())
	for _, cmd := range c.Commands(1) {
		w.mustApplyEncoded(cmd)
	}
}

// A53, I9: an unknown allocation is never collected, nor its job, its node, or the
// evaluation that owns it; when it has ended, all of them go.
func TestUnknownIsNeverCollected(t *testing.T) {
	w := newHarness(t)
	id := w.placeRunning("web", fleet.JobTypeService)
	a, _ := w.View().Alloc(id)
	w.loseAndCheckNode(false)
	w.deregisterJob("web")
	if j, ok := w.View().Job("default", "web"); !ok || !j.Stop {
		t.Fatalf("the job is not stopped: %+v", j)
	}
	for range 3 { // passes of a year each
		w.now = w.now.Add(365 * 24 * time.Hour)
		w.runCollection()
		kept, ok := w.View().Alloc(id)
		if !ok || kept.ClientStatus != fleet.ClientUnknown {
			t.Fatalf("the allocation: %+v\n%s", kept, w.describeState())
		}
		if _, ok := w.View().Eval(a.EvalID); !ok {
			t.Fatalf("its evaluation is gone\n%s", w.describeState())
		}
		if _, ok := w.View().Job("default", "web"); !ok {
			t.Fatalf("its job is gone\n%s", w.describeState())
		}
		if _, ok := w.View().Node(nodeID); !ok {
			t.Fatalf("its node is gone\n%s", w.describeState())
		}
	}
	w.setDesiredStatus(id, fleet.DesiredStop)
	w.purgeNode()
	w.setClientStatus(id, fleet.ClientLost)
	w.now = w.now.Add(24 * time.Hour)
	for range 3 { // what each pass frees, the next one takes
		w.runCollection()
	}
	if _, ok := w.View().Alloc(id); ok {
		t.Errorf("the allocation has ended and stays\n%s", w.describeState())
	}
	if _, ok := w.View().Eval(a.EvalID); ok {
		t.Errorf("its evaluation stays\n%s", w.describeState())
	}
}
