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

// forEver reports whether a task that succeeds is started again: sidecars always,
// others that have a hook never, main tasks by the type of their job.
func forEver(t *fleet.Task, jobType string) bool {
	hook, sidecar := hookOf(t)
	if hook == "" {
		return jobType != fleet.JobTypeBatch && jobType != fleet.JobTypeSysBatch
	}
	return sidecar
}

// isLast reports whether the task runs when the others have ended: a stop of the
// allocation does not concern it.
func (t *task) isLast() bool { return t.hook == fleet.HookPoststop }

// dead, and up: it runs in this boot, as far as is journaled.
func (t *task) dead() bool { return t.state.State == fleet.TaskDead }
func (t *task) up() bool   { return t.state.State == fleet.TaskRunning && t.seen }

// advance lets those tasks start whose time has come, and ends those that have
// nothing left to run beside.
func (r *Runner) advance() {
	if r.beside() && !r.isStopped() {
		for _, t := range r.tasks {
			if t.sidecar && !t.isLast() {
				t.kill("The tasks that it ran beside have ended")
			}
		}
	}
	for _, t := range r.tasks {
		if !t.open && !t.dead() && r.mayStart(t) {
			t.open = true
			close(t.gate)
		}
	}
}

// beside reports whether all have ended but sidecars and what runs last.
func (r *Runner) beside() bool {
	ended := false
	for _, t := range r.tasks {
		switch {
		case t.sidecar, t.isLast():
		case t.dead():
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
		case t.isLast() && !other.isLast() && !other.dead():
			return false
		case t.hook == "" && other.hook == fleet.HookPrestart && !other.prepared():
			return false
		case t.hook == fleet.HookPoststart && other.hook == "" && !other.up() && !other.dead():
			return false
		}
	}
	if t.isLast() && !started {
		t.kill("Nothing was started")
		return false
	}
	return true
}

// prepared: a task before the main ones has succeeded, or runs beside them.
func (t *task) prepared() bool {
	if t.sidecar {
		return t.up()
	}
	return t.dead() && !t.state.Failed
}

// await waits until the task may start, or is not to.
func (t *task) await(ctx context.Context) error {
	for {
		select {
		case <-t.gate:
			return nil
		case <-t.killed:
			return nil
		case <-t.stopped():
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

// stopped is closed when the allocation is stopped and that concerns the task.
func (t *task) stopped() <-chan struct{} {
	if t.isLast() {
		return nil
	}
	return t.runner.stopped
}

// waits reports whether the task may start.
func (t *task) waits() bool {
	select {
	case <-t.gate:
		return false
	default:
		return true
	}
}
