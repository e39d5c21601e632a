package runner

import (
	"context"

	"skerry/fleet"
)

// hookOf returns the lifecycle hook of a task, "" for a main task. Another hook needs another allocation.
func hookOf(t *fleet.Task) (hook string, sidecar bool) {
	if t.Lifecycle == nil {
		return "", false
	}
	return t.Lifecycle.Hook, t.Lifecycle.Sidecar
}

// runsForever reports whether a task is restarted after a success: sidecars always, other tasks with a
// hook never, main tasks depending on the type of their job.
func runsForever(t *fleet.Task, jobType string) bool {
	hook, sidecar := hookOf(t)
	if hook == "" {
		return jobType != fleet.JobTypeBatch && jobType != fleet.JobTypeSysBatch
	}
	return sidecar
}

// isLast reports whether the task is a poststop task. A stop of the allocation does not stop it.
func (t *task) isLast() bool { return t.hook == fleet.HookPoststop }

func (t *task) isDead() bool { return t.state.State == fleet.TaskDead }

// isRunningNow reports whether the task runs in this boot, as journaled.
func (t *task) isRunningNow() bool { return t.state.State == fleet.TaskRunning && t.stateOfThisBoot }

// startReadyTasks opens the start gate of tasks whose turn it is, and ends sidecars that have nothing
// left to run beside.
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

// hasOnlySidecars reports whether all tasks have ended but sidecars and poststop tasks.
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

// mayStart reports whether it is a task's turn: a main task after the prestart tasks, a poststart task
// when all main tasks run or have run, a poststop task when all others are dead. If no task ever
// started, a poststop task has nothing to clean up.
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

// isPrepared reports whether a prestart task has succeeded, or runs if it is a sidecar.
func (t *task) isPrepared() bool {
	if t.sidecar {
		return t.isRunningNow()
	}
	return t.isDead() && !t.state.Failed
}

// waitForStart waits until the task may start, or must not start any more.
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

// allocStopped is closed when the allocation is stopped; nil for a task that this does not stop.
func (t *task) allocStopped() <-chan struct{} {
	if t.isLast() {
		return nil
	}
	return t.runner.stopped
}

// isWaitingToStart reports whether the start gate is closed.
func (t *task) isWaitingToStart() bool {
	select {
	case <-t.startGate:
		return false
	default:
		return true
	}
}
