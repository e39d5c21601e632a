package allocs

import (
	"context"

	"skerry/edge/contract"
	"skerry/fleet"
)

// Usage returns what the tasks of an allocation use, or one of them.
func (a *Allocs) Usage(ctx context.Context, id fleet.AllocID, task string, mhz float64) (map[string]*fleet.TaskUsage, error) {
	u, err := a.findActiveAlloc(ctx, id)
	if err != nil {
		return nil, err
	}
	m, ok := u.runner.(contract.Meter)
	if !ok {
		return nil, fleet.Errorf(fleet.CodeUnsupported, "measure allocation %s: its runner cannot measure", fleet.Short(id))
	}
	return m.Usage(ctx, task, mhz)
}
