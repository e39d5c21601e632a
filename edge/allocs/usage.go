package allocs

import (
	"context"

	"skerry/edge/contract"
	"skerry/fleet"
	"skerry/fleet/usage"
)

// Usage briefly measures the resource usage of a task, or of each running task for "". mhz is the clock rate of a
// core.
func (a *Allocs) Usage(ctx context.Context, id fleet.AllocID, task string, mhz float64) (map[string]*usage.Task, error) {
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
