package allocs

import (
	"context"
	"fmt"
	"slices"

	"skerry/fleet"
)

// UsesVolume reports whether an unfinished allocation of the namespace uses the host volume with that name. An
// allocation whose job is not known yet counts as a user.
func (a *Allocs) UsesVolume(ctx context.Context, namespace, name string) (bool, error) {
	desired, err := a.readDesired(ctx)
	if err != nil {
		return false, fmt.Errorf("find the users of host volume %s: %w", name, err)
	}
	states := a.cfg.Journal.States()
	for id, w := range desired {
		ended := states[id].Terminal() && a.activeAllocOf(id) == nil
		if !ended && w.Alloc.Namespace == namespace && (w.Alloc.Job == nil || w.Alloc.UsesVolume(name)) {
			return true, nil
		}
	}
	return false, nil
}

// IsUnfinished reports whether an allocation is here and has not ended.
func (a *Allocs) IsUnfinished(ctx context.Context, id fleet.AllocID) (bool, error) {
	desired, err := a.readDesired(ctx)
	if err != nil {
		return false, fmt.Errorf("find allocation %s: %w", fleet.Short(id), err)
	}
	_, here := desired[id]
	return here && !(a.cfg.Journal.States()[id].Terminal() && a.activeAllocOf(id) == nil), nil
}

// ReadsVariable reports whether an unfinished allocation of the namespace may read the variable of that path. An
// allocation whose job is not known yet counts as a reader.
func (a *Allocs) ReadsVariable(ctx context.Context, namespace, path string) (bool, error) {
	desired, err := a.readDesired(ctx)
	if err != nil {
		return false, fmt.Errorf("find the readers of variable %s: %w", path, err)
	}
	states := a.cfg.Journal.States()
	for id, w := range desired {
		ended := states[id].Terminal() && a.activeAllocOf(id) == nil
		if !ended && w.Alloc.Namespace == namespace && (w.Alloc.Job == nil || slices.Contains(w.Alloc.VariablePaths(""), path)) {
			return true, nil
		}
	}
	return false, nil
}
