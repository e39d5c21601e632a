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

// Each observation of a run goes to the monitor and into the history.

// judgeAndRecord passes an observation to the monitor and writes it to the history. It drops
// the observation if the run has ended.
func (r *run) judgeAndRecord(o check.Observation) {
	if r.ended.Load() {
		return
	}
	r.recorder.Observe(o)
}

// recordHarnessFailure adds a failure of the harness to the run's reasons; the run is then void.
func (r *run) recordHarnessFailure(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broke = append(r.broke, fmt.Sprintf(format, args...))
}

// observeApplied records a command that the hub of that name applied, and searches it for secrets.
func (r *run) observeApplied(name string, a hub.Applied) {
	r.searchCommand(name, a)
	r.judgeAndRecord(check.Observation{Applied: observe.Applied(name, a, r.recorder.Monitor.Wants(a.Index))})
}

// observeTaskEvent records that a task on the machine of an edge started, exited, was stopped or
// vanished. It ignores events of other tasks than those of allocations.
func (r *run) observeTaskEvent(edge string, e sim.Event) {
	id, ok := taskOf(e.ID)
	if !ok {
		return
	}
	what := map[string]string{
		sim.Started: check.TaskStarted, sim.Exited: check.TaskExited, sim.Stopped: check.TaskStopped, sim.Vanished: check.TaskVanished,
	}[e.What]
	if e.What == sim.Stopped {
		// The monitor has to know whether a hub could have sent the stop: observe the session
		// now, because one that resumes before its node's deadline leaves no entry in the log.
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

// observeRefusal records that a session or a message was refused.
func (r *run) observeRefusal(o check.Refused) {
	at := r.elapsedTime()
	r.recordRevocation(at, o)
	r.expect.Update(func(j *schedule.ExpectationChecker) { j.AddRefusal(at, o.Code) })
	r.judgeAndRecord(check.Observation{Refused: &o})
}

// observeDial records that an edge begins a round of dialing.
func (r *run) observeDial(edge string) {
	r.judgeAndRecord(check.Observation{Dial: &check.Dial{Edge: edge}})
}
