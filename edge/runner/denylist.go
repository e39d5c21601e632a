package runner

import (
	"context"
	"slices"

	"skerry/fleet"
)

// DriverDenylist holds the names of drivers that this machine's owner denies. It is a Hook that refuses each attempt of
// a task with such a driver, whatever the hubs say.
type DriverDenylist []string

// Name returns the hook's name for messages.
func (DriverDenylist) Name() string { return "denied drivers" }

// Prepare refuses a task with a denied driver. The error is final.
func (d DriverDenylist) Prepare(_ context.Context, p *Preparation) error {
	if !slices.Contains(d, p.Task.Driver) {
		return nil
	}
	return fleet.Errorf(fleet.CodeForbidden, "start task %s: the driver %s is denied on this edge", p.Task.Name, p.Task.Driver).
		WithHint("choose another driver or node, or change --driver-denylist of this edge")
}

// Release does nothing.
func (DriverDenylist) Release(context.Context, fleet.Alloc) error { return nil }
