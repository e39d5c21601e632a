package runner

import (
	"context"
	"fmt"
	"time"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/fleet/usage"
	"skerry/internal/pace"
)

// measureFor is the time over which processor time is measured: its clock ticks a hundred times a second.
const measureFor = 500 * time.Millisecond

// Usage measures, for half a second, the usage of the named task, or of each running task for "". mhz is the clock
// rate of a core. Without a name, tasks whose driver cannot measure are left out.
func (r *Runner) Usage(ctx context.Context, name string, mhz float64) (map[string]*usage.Task, error) {
	live, err := r.measurableTasks(name)
	if err != nil {
		return nil, err
	}
	before, began := map[string][]fleet.Consumed{}, time.Now()
	for task, m := range live {
		if before[task], err = m.Consumed(ctx); err != nil && fleet.CodeOf(err) != fleet.CodeConflict {
			return nil, fmt.Errorf("measure task %q: %w", task, err)
		}
	}
	if !pace.Rest(ctx, measureFor) {
		return nil, ctx.Err()
	}
	out := map[string]*usage.Task{}
	for task, m := range live {
		after, err := m.Consumed(ctx)
		switch {
		case fleet.CodeOf(err) == fleet.CodeConflict: // it has ended
			continue
		case err != nil:
			return nil, fmt.Errorf("measure task %q: %w", task, err)
		}
		out[task] = usage.OfTask(before[task], after, time.Since(began), mhz, time.Now().UnixNano())
	}
	return out, nil
}

// measurableTasks returns the named task, or all running tasks for "", whose driver can measure. For a named
// task that cannot be measured it returns a fleet.CodeUnsupported.
func (r *Runner) measurableTasks(name string) (map[string]drivers.Meter, error) {
	out := map[string]drivers.Meter{}
	if name != "" {
		a, err := r.runningAttempt(name)
		if err != nil {
			return nil, err
		}
		m, ok := a.handle.(drivers.Meter)
		if !ok {
			return nil, fleet.Errorf(fleet.CodeUnsupported, "measure task %q: its driver %q cannot measure", name, a.driver)
		}
		out[name] = m
		return out, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for task, a := range r.attempts {
		if m, ok := a.handle.(drivers.Meter); ok {
			out[task] = m
		}
	}
	return out, nil
}
