package runner

import (
	"context"
	"fmt"
	"time"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/pace"
)

// driverHealthInterval is how often a driver is asked for the health of a task with a health check of its own.
const driverHealthInterval = 10 * time.Second

// DriverHealth is a Hook that journals an event when a task's health changes by its driver, for example by the health
// check of a container image. It prepares and releases nothing.
type DriverHealth struct {
	Drivers map[string]drivers.Driver // by name
}

// Name returns the hook's name for messages.
func (DriverHealth) Name() string { return "health of the driver" }

// Prepare does nothing.
func (DriverHealth) Prepare(context.Context, *Preparation) error { return nil }

// Release does nothing.
func (DriverHealth) Release(context.Context, fleet.Alloc) error { return nil }

// Watch asks the driver regularly and journals each change from and to unhealthy. It returns at once if the driver
// reports no health, or the task has no check of its own.
func (h DriverHealth) Watch(ctx context.Context, p *Preparation, control TaskControl) {
	reporter, ok := h.Drivers[p.Task.Driver].(drivers.HealthReporter)
	if !ok {
		return
	}
	unhealthy := false
	for {
		health, err := reporter.TaskHealth(ctx, *p.Config)
		switch {
		case err != nil: // the daemon does not answer: the edge records that for all tasks of the driver
		case health.Status == drivers.HealthUnknown:
			return
		case (health.Status == drivers.HealthBad) != unhealthy:
			message := "The driver's health check passes again"
			if !unhealthy {
				message = fmt.Sprintf("The driver's health check fails: %s", health.Output)
			}
			if control.Event(ctx, fleet.TaskHealth, message) != nil {
				return
			}
			unhealthy = !unhealthy
		}
		if !pace.Rest(ctx, driverHealthInterval) {
			return
		}
	}
}
