package runner

import (
	"context"

	"skerry/fleet"
)

// hookOf returns the lifecycle hook of a task, "" for a main task, and whether it is a sidecar.
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

// isPoststop reports whether the task is a poststop task. A stop of the allocation does not stop it.
func (t *task) isPoststop() bool { return t.hook == fleet.HookPoststop }

func (t *task) isDead() bool { return t.state.State == fleet.TaskDead }

// isRunningNow reports whether a row of this boot says that the task runs.
func (t *task) isRunningNow() bool { return t.state.State == fleet.TaskRunning && t.stateOfThisBoot }

// startReadyTasks lets the tasks start whose turn it is by their lifecycle hooks. It tells sidecars to end when
// no main task is left.
func (r *Runner) startReadyTasks() {
	if r.hasOnlySidecars() && !r.isStopped() {
		for _, t := range r.tasks {
			if t.sidecar && !t.isPoststop() {
				t.requestKill("All main tasks have ended")
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

// hasOnlySidecars reports whether every task has ended except sidecars and poststop tasks, and at least one
// has.
func (r *Runner) hasOnlySidecars() bool {
	ended := false
	for _, t := range r.tasks {
		switch {
		case t.sidecar, t.isPoststop():
		case t.isDead():
			ended = true
		default:
			return false
		}
	}
	return ended
}

// mayStart reports whether it is a task's turn: a main task after the prestart tasks, a poststart task when all
// main tasks run or have run, a poststop task when all others are dead. If no task ever started, it ends a
// poststop task, which then has nothing to clean up.
func (r *Runner) mayStart(t *task) bool {
	started := false
	for _, other := range r.tasks {
		started = started || !other.isPoststop() && other.state.StartedAt != nil
		switch {
		case other == t || t.hook == fleet.HookPrestart:
		case t.isPoststop() && !other.isPoststop() && !other.isDead():
			return false
		case t.hook == "" && other.hook == fleet.HookPrestart && !other.isPrepared():
			return false
		case t.hook == fleet.HookPoststart && other.hook == "" && !other.isRunningNow() && !other.isDead():
			return false
		}
	}
	if t.isPoststop() && !started {
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

// waitForStart returns nil when the start gate is open, or the task must not start any more. Meanwhile it
// refuses restarts and signals. An error means that ctx has ended.
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

// allocStopped returns a channel that is closed when the allocation is stopped; nil for a poststop task, which
// this does not stop.
func (t *task) allocStopped() <-chan struct{} {
	if t.isPoststop() {
		return nil
	}
	return t.runner.stopped
}

// isWaitingToStart reports whether the task must still wait for its turn to start.
func (t *task) isWaitingToStart() bool {
	select {
	case <-t.startGate:
		return false
	default:
		return true
	}
}
