package runner

import (
	"context"

	"skerry/fleet"
)

// hookOf is when in the allocation's life a task runs, "" for a main task. A newer
// version that says otherwise is another allocation.
func hookOf(t *fleet.Task) (hook string, sidecar bool) {
	if t.Lifecycle == nil {
		return "", false
	}
	return t.Lifecycle.Hook, t.Lifecycle.Sidecar
}

// runsForever reports whether a task that succeeds is started again: sidecars always,
// others that have a hook never, main tasks by the type of their job.
func runsForever(t *fleet.Task, jobType string) bool {
	hook, sidecar := hookOf(t)
	if hook == "" {
		return jobType != fleet.JobTypeBatch && jobType != fleet.JobTypeSysBatch
	}
	return sidecar
}

// isLast reports whether the task runs when the others have ended: a stop of the
// allocation does not concern it.
func (t *task) isLast() bool { return t.hook == fleet.HookPoststop }

// isDead, and up: it runs in this boot, as far as is journaled.
func (t *task) isDead() bool       { return t.state.State == fleet.TaskDead }
func (t *task) isRunningNow() bool { return t.state.State == fleet.TaskRunning && t.stateOfThisBoot }

// startReadyTasks lets those tasks start whose time has come, and ends those that have
// nothing left to run beside.
func (r *Runner) startReadyTasks() {
	if r.hasOnlySidecars() && !r.isStopped() {
		for _, t := range r.tasks {
			if t.sidecar && !t.isLast() {
				t.requestKill("The tasks that it ran beside have ended")
			}
		}
	}
	for _, t := range r.tasks {
		if !t.gateOpen && !t.isDead() && r.mayStart(t) {
			t.gateOpen = true
			close(t.startGate)
		}
	}
}

// hasOnlySidecars reports whether all have ended but sidecars and what runs last.
func (r *Runner) hasOnlySidecars() bool {
	ended := false
	for _, t := range r.tasks {
		switch {
		case t.sidecar, t.isLast():
		case t.isDead():
			ended = true
		default:
			return false
		}
	}
	return ended
}

// mayStart: a main task after those that prepare for it, one after the start when all
// main ones run, or did, one after the stop when all others are dead. Where
// nothing was ever started there is nothing to clean up after.
func (r *Runner) mayStart(t *task) bool {
	started := false
	for _, other := range r.tasks {
		started = started || !other.isLast() && other.state.StartedAt != nil
		switch {
		case other == t || t.hook == fleet.HookPrestart:
		case t.isLast() && !other.isLast() && !other.isDead():
			return false
		case t.hook == "" && other.hook == fleet.HookPrestart && !other.isPrepared():
			return false
		case t.hook == fleet.HookPoststart && other.hook == "" && !other.isRunningNow() && !other.isDead():
			return false
		}
	}
	if t.isLast() && !started {
		t.requestKill("Nothing was started")
		return false
	}
	return true
}

// isPrepared: a task before the main ones has succeeded, or runs beside them.
func (t *task) isPrepared() bool {
	if t.sidecar {
		return t.isRunningNow()
	}
	return t.isDead() && !t.state.Failed
}

// waitForStart waits until the task may start, or is not to.
func (t *task) waitForStart(ctx context.Context) error {
	for {
		select {
		case <-t.startGate:
			return nil
		case <-t.killed:
			return nil
		case <-t.allocStopped():
			return nil
		case req := <-t.signals:
			req.reply <- errEnded
		case req := <-t.restarts:
			req.reply <- errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// allocStopped is closed when the allocation is stopped and that concerns the task.
func (t *task) allocStopped() <-chan struct{} {
	if t.isLast() {
		return nil
	}
	return t.runner.stopped
}

// isWaitingToStart reports whether the task may start.
func (t *task) isWaitingToStart() bool {
	select {
	case <-t.startGate:
		return false
	default:
		return true
	}
}
