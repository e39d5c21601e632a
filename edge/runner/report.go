package runner

import (
	"context"
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/internal/pace"
)

// recordRetry is the pause after a failed write to the journal or a failed call of a driver. The caller does
// nothing else meanwhile.
const recordRetry = time.Second

// Texts of fleet.Alloc.ClientDescription.
const (
	describePending  = "Tasks are not all running yet"
	describeRunning  = "Tasks are running"
	describeComplete = "All tasks have completed"
	describeFailed   = "Failed tasks"
	describeRebooted = "The machine rebooted"
)

// report is a task's request to the allocation's goroutine: to journal steps together, with the task's encoded
// record if that is not nil. The reply comes when they are durable.
type report struct {
	task   *task
	steps  []step
	record []byte
	reply  chan error
}

// step is one row of a task: an event and, if change is not nil, a change of the task's state.
type step struct {
	event  fleet.TaskEvent
	change func(s *fleet.TaskState)
}

// journalReport applies a task's steps to its state and journals them together. Then it ends other tasks if the
// end of this one requires that, and lets tasks start whose turn it is. If the rows cannot be journaled, the
// task's state stays as it was.
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
	if r.isHeld() && before.State == fleet.TaskRunning && t.state.State != fleet.TaskRunning {
		r.holdInOrder()
	}
	r.startReadyTasks()
	return nil
}

// nextStatus returns the allocation's client status and its description after a task's event, from the states
// of all tasks. event is the type of that event; "": none. If nothing decides a status, it returns the given
// one and "".
func (r *Runner) nextStatus(status, event string) (next, description string) {
	dead, running, later, failed := 0, 0, 0, false
	for _, t := range r.tasks {
		switch {
		case t.isDead():
			dead++
			failed = failed || t.state.Failed
		case t.state.State == fleet.TaskRunning:
			running++
		case t.isPoststop(), t.hook == fleet.HookPoststart && !t.gateOpen:
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
	case dead+running+later == len(r.tasks) && !failed && !r.isStopped() && !r.isHeld():
		return fleet.ClientRunning, describeRunning
	}
	return status, ""
}

// recordUnrunnable records that the allocation has failed, because its job or its group's tasks are missing.
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

// recordReceived records that the tasks of a new allocation were received: the allocation is pending.
func (r *Runner) recordReceived(ctx context.Context) error {
	r.status = fleet.ClientPending
	ts := make([]fleet.Transition, len(r.tasks))
	for i, t := range r.tasks {
		ts[i] = t.eventTransition(t.newTaskEvent(fleet.TaskReceived, "Task received by the edge"))
	}
	ts[0].Kind, ts[0].ClientStatus, ts[0].ClientDescription = fleet.TransitionAlloc, r.status, describePending
	return r.recordWithRetry(ctx, ts...)
}

// recordNetwork journals how the allocation is reached in its own network, unless this process did so already. Any task's
// goroutine may call it: the row says nothing else, so that its place among the others does not matter.
func (r *Runner) recordNetwork(ctx context.Context, s fleet.NetworkStatus) error {
	r.mu.Lock()
	known := r.network == s
	r.network = s
	r.mu.Unlock()
	if known {
		return nil
	}
	return r.recordWithRetry(ctx, fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: r.id, Network: &s, Message: fmt.Sprintf("address %s on %s", s.Address, s.InterfaceName),
	})
}

// recordEnd records the end of the allocation, when all its tasks have ended.
func (r *Runner) recordEnd(ctx context.Context) error {
	status, description := r.nextStatus(r.status, "")
	r.status = status
	return r.recordWithRetry(ctx, fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: r.id, ClientStatus: status, ClientDescription: description,
	})
}

// recordWithRetry journals transitions, and tries again until it succeeds: nothing may be done before what
// happened is journaled. An error means that ctx has ended.
func (r *Runner) recordWithRetry(ctx context.Context, ts ...fleet.Transition) error {
	return r.retryUntilDurable(ctx, func() error { return r.rec.Record(ctx, ts...) })
}

// recordReport journals a report's transitions, and the task's record in the same commit if it has one. An
// error means that ctx has ended.
func (r *Runner) recordReport(ctx context.Context, rep report, ts []fleet.Transition) error {
	if rep.record == nil {
		return r.recordWithRetry(ctx, ts...)
	}
	return r.retryUntilDurable(ctx, func() error { return r.rec.PutHandle(ctx, r.id, rep.task.name, rep.record, ts...) })
}

// putHandle journals bytes under a key of the allocation, and tries again until it succeeds. An error means
// that ctx has ended.
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
