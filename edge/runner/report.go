package runner

import (
	"context"
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/internal/pace"
)

// recordRetry is the pause after a failed write to the journal. The runner does nothing else meanwhile.
const recordRetry = time.Second

// Descriptions of client statuses.
const (
	describePending  = "Tasks are not all running yet"
	describeRunning  = "Tasks are running"
	describeComplete = "All tasks have completed"
	describeFailed   = "Failed tasks"
	describeRebooted = "The machine rebooted"
)

// report is a task's request to journal steps together, with its record if it has one.
type report struct {
	task   *task
	steps  []step
	record []byte
	reply  chan error
}

// step is one transition of a task: an event and a change of the state.
type step struct {
	event  fleet.TaskEvent
	change func(s *fleet.TaskState)
}

// journalReport journals a task's steps and acts on the new state of the allocation.
func (r *Runner) journalReport(ctx context.Context, rep report) error {
	t, before, status := rep.task, rep.task.state, r.status
	ts := make([]fleet.Transition, 0, len(rep.steps))
	for _, s := range rep.steps {
		if s.change != nil {
			s.change(&t.state)
		}
		tr := t.eventTransition(s.event)
		if next, description := r.nextStatus(status, s.event.Type); next != status {
			status = next
			tr.Kind, tr.ClientStatus, tr.ClientDescription = fleet.TransitionAlloc, next, description
		}
		ts = append(ts, tr)
	}
	if err := r.recordReport(ctx, rep, ts); err != nil {
		t.state = before
		return err
	}
	r.status, t.stateOfThisBoot = status, true
	if r.expiry.begun == nil && t.state.State == fleet.TaskRunning {
		r.noteFirstStart(t.rec.Started)
		if err := r.enforceMaxRun(ctx); err != nil {
			return err
		}
	}
	if t.state.State == fleet.TaskDead && before.State != fleet.TaskDead {
		r.propagateTaskEnd(t)
	}
	r.startReadyTasks()
	return nil
}

// nextStatus returns the allocation's client status after a task's transition.
func (r *Runner) nextStatus(status, event string) (next, description string) {
	dead, running, later, failed := 0, 0, 0, false
	for _, t := range r.tasks {
		switch {
		case t.isDead():
			dead++
			failed = failed || t.state.Failed
		case t.state.State == fleet.TaskRunning:
			running++
		case t.isLast(), t.hook == fleet.HookPoststart && !t.gateOpen:
			later++
		}
	}
	switch {
	case dead == len(r.tasks) && failed:
		return fleet.ClientFailed, describeFailed
	case dead == len(r.tasks) && r.expiry.why != "":
		return fleet.ClientComplete, r.expiry.why
	case dead == len(r.tasks):
		return fleet.ClientComplete, describeComplete
	case event == fleet.TaskLostAtReboot && status == fleet.ClientRunning:
		return fleet.ClientPending, describeRebooted
	case dead+running+later == len(r.tasks) && !failed && !r.isStopped():
		return fleet.ClientRunning, describeRunning
	}
	return status, ""
}

// recordUnrunnable records that an allocation without tasks has failed.
func (r *Runner) recordUnrunnable(ctx context.Context) error {
	a := r.currentAlloc()
	why := fmt.Sprintf("job %s has no group %q with tasks", a.JobID, a.TaskGroup)
	if a.Job == nil {
		why = fmt.Sprintf("the specification of job %s is missing", a.JobID)
	}
	r.status = fleet.ClientFailed
	return r.recordWithRetry(ctx, fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: r.id, ClientStatus: r.status, ClientDescription: why, Message: why,
	})
}

func (r *Runner) recordReceived(ctx context.Context) error {
	r.status = fleet.ClientPending
	ts := make([]fleet.Transition, len(r.tasks))
	for i, t := range r.tasks {
		ts[i] = t.eventTransition(t.newTaskEvent(fleet.TaskReceived, "Task received by the edge"))
	}
	ts[0].Kind, ts[0].ClientStatus, ts[0].ClientDescription = fleet.TransitionAlloc, r.status, describePending
	return r.recordWithRetry(ctx, ts...)
}

func (r *Runner) recordEnd(ctx context.Context) error {
	status, description := r.nextStatus(r.status, "")
	r.status = status
	return r.recordWithRetry(ctx, fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: r.id, ClientStatus: status, ClientDescription: description,
	})
}

// recordWithRetry journals transitions and tries until it succeeds: nothing may be done before what
// happened is journaled.
func (r *Runner) recordWithRetry(ctx context.Context, ts ...fleet.Transition) error {
	return r.retryUntilDurable(ctx, func() error { return r.rec.Record(ctx, ts...) })
}

// recordReport journals a report's transitions, with the task's record if it has one.
func (r *Runner) recordReport(ctx context.Context, rep report, ts []fleet.Transition) error {
	if rep.record == nil {
		return r.recordWithRetry(ctx, ts...)
	}
	return r.retryUntilDurable(ctx, func() error { return r.rec.PutHandle(ctx, r.id, rep.task.name, rep.record, ts...) })
}

func (r *Runner) putHandle(ctx context.Context, task string, b []byte) error {
	return r.retryUntilDurable(ctx, func() error { return r.rec.PutHandle(ctx, r.id, task, b) })
}

// retryUntilDurable repeats a write to the journal until it succeeds or ctx ends.
func (r *Runner) retryUntilDurable(ctx context.Context, write func() error) error {
	for failed := false; ; failed = true {
		err := write()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !failed {
			r.log.Error("journal write failed: trying again", "error", err)
		}
		if err := sleepContext(ctx, recordRetry); err != nil {
			return err
		}
	}
}

// sleepContext waits for d, or returns ctx's cause if that ends first.
func sleepContext(ctx context.Context, d time.Duration) error {
	if !pace.Rest(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
