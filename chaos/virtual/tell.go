package virtual

import (
	"context"
	"fmt"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/observe"
	"skerry/chaos/schedule"
	"skerry/drivers/sim"
	"skerry/hub"
)

// What a run is told goes to the monitor, and into the record.

// judgeAndRecord has an observation judged and recorded.
func (r *run) judgeAndRecord(o check.Observation) {
	if r.ended.Load() {
		return
	}
	r.recorder.Observe(o)
}

// recordHarnessFailure notes what the harness could not do; the run is then void.
func (r *run) recordHarnessFailure(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broke = append(r.broke, fmt.Sprintf(format, args...))
}

func (r *run) observeApplied(name string, a hub.Applied) {
	r.judgeAndRecord(check.Observation{Applied: observe.Applied(name, a, r.recorder.Monitor.Wants(a.Index))})
}

func (r *run) observeTaskEvent(edge string, e sim.Event) {
	id, ok := taskOf(e.ID)
	if !ok {
		return
	}
	what := map[string]string{
		sim.Started: check.TaskStarted, sim.Exited: check.TaskExited, sim.Stopped: check.TaskStopped, sim.Vanished: check.TaskVanished,
	}[e.What]
	if e.What == sim.Stopped {
		// Whose word it was depends on whether a hub's could come through, and a session
		// that goes on before its node's deadline leaves no entry.
		r.observeEdge(context.Background(), r.c.Edge(edge), false)
	}
	if e.What == sim.Started {
		r.expect.Update(func(j *schedule.ExpectationChecker) { j.AddTaskStart(id.Alloc, id.Task) })
	}
	seen := check.Task{
		Edge: edge, Alloc: id.Alloc, Task: id.Task, What: what, Exit: e.Exit.Code, Fails: e.What != sim.Started && !e.Exit.Success(),
	}
	if e.What == sim.Stopped {
		seen.Wall = time.Now()
	}
	r.judgeAndRecord(check.Observation{Task: &seen})
}

func (r *run) observeRefusal(o check.Refused) {
	at := r.elapsedTime()
	r.expect.Update(func(j *schedule.ExpectationChecker) { j.AddRefusal(at, o.Code) })
	r.judgeAndRecord(check.Observation{Refused: &o})
}

func (r *run) observeDial(edge string) {
	r.judgeAndRecord(check.Observation{Dial: &check.Dial{Edge: edge}})
}
