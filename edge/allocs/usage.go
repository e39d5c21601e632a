package allocs

import (
	"context"

	"skerry/fleet"
)

// Meter is a Runner that can say what its tasks use.
type Meter interface {
	// Usage measures the tasks that run, or the one that is named, for a moment; mhz is
	// the rate of a core.
	Usage(ctx context.Context, task string, mhz float64) (map[string]*fleet.TaskUsage, error)
}

// Usage is what the tasks of an allocation use, or one of them.
func (a *Allocs) Usage(ctx context.Context, id fleet.AllocID, task string, mhz float64) (map[string]*fleet.TaskUsage, error) {
	u, err := a.findActiveAlloc(ctx, id)
	if err != nil {
		return nil, err
	}
	m, ok := u.runner.(Meter)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeUnsupported, "measure allocation %s: what runs it here does not", fleet.Short(id))
	}
	return m.Usage(ctx, task, mhz)
}
