package runner

import (
	"context"
	"slices"

	"skerry/edge/contract"
	"skerry/fleet"
)

// Hold ends the tasks without ending the allocation: those that have not ended stay pending. Run then returns
// contract.ErrHeld, and the next runner of the allocation starts them again. It does not wait. Before Run, it makes
// Run recover and end what still runs, and start nothing. A Stop counts more than a Hold.
func (r *Runner) Hold(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.held:
	default:
		r.holdReason = reason
		close(r.held)
	}
}

// isHeld reports whether Hold was called, and Stop was not.
func (r *Runner) isHeld() bool {
	select {
	case <-r.held:
		return !r.isStopped()
	default:
		return false
	}
}

func (r *Runner) whyHeld() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holdReason
}

// holdInOrder tells a running leader to end, whose end then ends the others. Without a running leader it tells all
// tasks to end, also poststop tasks, because the allocation has not ended.
func (r *Runner) holdInOrder() {
	for _, t := range r.tasks {
		if t.isLeader() && t.state.State == fleet.TaskRunning {
			t.requestKill(r.whyHeld())
			return
		}
	}
	for _, t := range r.tasks {
		t.requestKill(r.whyHeld())
	}
}

// isParked reports whether the task must end and stay pending, because the allocation is held.
func (t *task) isParked() bool {
	select {
	case <-t.killed:
		return t.runner.isHeld()
	default:
		return false
	}
}

// hasPendingTasks reports whether any task has not ended for good.
func (r *Runner) hasPendingTasks() bool {
	return slices.ContainsFunc(r.tasks, func(t *task) bool { return !t.isDead() })
}

// recordHeld records that no task of the held allocation runs any more, and returns contract.ErrHeld. Any other error
// means that ctx has ended.
func (r *Runner) recordHeld(ctx context.Context) error {
	if r.status != fleet.ClientPending || r.last.ClientStatus != fleet.ClientPending {
		r.status = fleet.ClientPending
		err := r.recordWithRetry(ctx, fleet.Transition{
			Kind: fleet.TransitionAlloc, Alloc: r.id, ClientStatus: r.status, ClientDescription: r.whyHeld(),
		})
		if err != nil {
			return err
		}
	}
	return contract.ErrHeld
}

// heldStep returns the step after which the task waits to be started again.
func (t *task) heldStep() step {
	return step{
		event:  t.newTaskEvent(fleet.TaskKilled, "Task was stopped on site"),
		change: func(s *fleet.TaskState) { s.State, s.RunningFor = fleet.TaskPending, 0 },
	}
}
