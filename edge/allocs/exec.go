package allocs

import (
	"context"

	"skerry/edge/contract"
	"skerry/fleet"
)

// Exec runs a command beside a running task of an allocation and returns its exit code. It ends with ctx and
// with the task.
func (a *Allocs) Exec(ctx context.Context, id fleet.AllocID, task string, x fleet.Exec) (int, error) {
	u, err := a.findActiveAlloc(ctx, id)
	if err != nil {
		return 0, err
	}
	e, ok := u.runner.(contract.Execer)
	if !ok {
		return 0, fleet.Errorf(fleet.CodeUnsupported, "run a command in allocation %s: its runner cannot run commands", fleet.Short(id))
	}
	return e.Exec(ctx, task, x)
}

// findActiveAlloc returns a desired allocation that has a runner. One that is unknown is a fleet.CodeNotFound,
// one without a runner a fleet.CodeConflict.
func (a *Allocs) findActiveAlloc(ctx context.Context, id fleet.AllocID) (*activeAlloc, error) {
	if _, err := a.findUnfinishedAlloc(ctx, id); err != nil {
		return nil, err
	}
	u := a.activeAllocOf(id)
	if u == nil {
		return nil, fleet.Errorf(fleet.CodeConflict, "run a command in allocation %s: it is not running", fleet.Short(id))
	}
	return u, nil
}

// activeAllocOf returns the allocation with that id if it has a runner; otherwise nil.
func (a *Allocs) activeAllocOf(id fleet.AllocID) *activeAlloc {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.active[id]
}
