package allocs

import (
	"context"
	"fmt"

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
		return 0, fleet.Errorf(fleet.CodeUnsupported, "run a command in allocation %s: this agent cannot run commands in tasks", fleet.Short(id))
	}
	return e.Exec(ctx, task, x)
}

// findActiveAlloc returns a desired allocation that has a runner. It returns fleet.CodeNotFound for an unknown one and
// fleet.CodeConflict for one without a runner.
func (a *Allocs) findActiveAlloc(ctx context.Context, id fleet.AllocID) (*activeAlloc, error) {
	if _, err := a.findUnfinishedAlloc(ctx, id); err != nil {
		return nil, err
	}
	u := a.activeAllocOf(id)
	if held := a.cfg.Journal.States()[id].Held; held != nil {
		return nil, fleet.Errorf(fleet.CodeConflict, "allocation %s does not run: it was %s", fleet.Short(id), held).
			WithHint("on the edge itself: skerry local start %s", fleet.Short(id))
	}
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

// ExecOnSite is Exec for an operator on site, if the job allows that. It journals who runs which program.
func (a *Allocs) ExecOnSite(ctx context.Context, id fleet.AllocID, task, by string, x fleet.Exec) (int, error) {
	u, err := a.findActiveAlloc(ctx, id)
	if err != nil {
		return 0, err
	}
	if err := checkAllowed(&u.alloc, fleet.LocalExec); err != nil {
		return 0, err
	}
	row := fleet.Transition{
		Kind: fleet.TransitionOperator, Alloc: id, Task: task, Message: Person{By: by, Reason: x.Command[0]}.describeAction("ran a command on site"),
	}
	if err := a.cfg.Journal.Record(ctx, row); err != nil {
		return 0, fmt.Errorf("run a command in allocation %s: %w", fleet.Short(id), err)
	}
	return a.Exec(ctx, id, task, x)
}
