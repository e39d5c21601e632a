package virtual

import (
	"context"
	"fmt"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/observe"
	"skerry/chaos/schedule"
	"skerry/drivers/sim"
	"skerry/fleet"
	"skerry/hub"
)

// What a run is told goes to the monitor, and into the record.

// see has an observation judged and recorded.
func (r *run) see(o check.Observation) {
	if r.ended.Load() {
		return
	}
	o.At = r.at()
	r.found(r.monitor.Observe(o))
	r.record(history.Record{Observation: o})
}

// found records violations and tells of them.
func (r *run) found(all []check.Violation) {
	for _, v := range all {
		r.record(history.Record{Violation: &v})
		if r.Found != nil {
			r.Found(v)
		}
	}
}

func (r *run) record(rec history.Record) {
	rec.At = r.at()
	if err := r.hist.Write(rec); err != nil {
		r.complain("record: %v", err)
	}
}

// complain notes what the harness could not do; the run is then void.
func (r *run) complain(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broke = append(r.broke, fmt.Sprintf(format, args...))
}

func (r *run) process(name string, edge bool, what string, boot fleet.BootID) {
	r.see(check.Observation{Process: &check.Process{Name: name, Edge: edge, What: what, Boot: boot}})
}

func (r *run) applied(name string, a hub.Applied) {
	r.see(check.Observation{Applied: observe.Applied(name, a, r.monitor.Wants(a.Index))})
}

func (r *run) task(edge string, e sim.Event) {
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
		r.lookAtEdge(context.Background(), r.c.Edge(edge), false)
	}
	if e.What == sim.Started {
		r.expect.tell(func(j *schedule.Judge) { j.Started(id.Alloc, id.Task) })
	}
	seen := check.Task{
		Edge: edge, Alloc: id.Alloc, Task: id.Task, What: what, Exit: e.Exit.Code, Fails: e.What != sim.Started && !e.Exit.Success(),
	}
	if e.What == sim.Stopped {
		seen.Wall = time.Now()
	}
	r.see(check.Observation{Task: &seen})
}

func (r *run) refused(o check.Refused) {
	at := r.elapsed()
	r.expect.tell(func(j *schedule.Judge) { j.Refused(at, o.Code) })
	r.see(check.Observation{Refused: &o})
}

func (r *run) dial(edge string) { r.see(check.Observation{Dial: &check.Dial{Edge: edge}}) }
