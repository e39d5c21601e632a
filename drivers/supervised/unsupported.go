//go:build !linux

package supervised

import (
	"context"

	"skerry/drivers"
	"skerry/fleet"
)

// unsupportedError returns the error of this driver on systems other than Linux.
func (d *Driver) unsupportedError() error {
	return fleet.Errorf(fleet.CodeUnsupported, "start the driver %s: this system is not supported", d.cfg.Name).
		WithHint("it needs Linux")
}

// Fingerprint reports that the driver does not work on this system.
func (d *Driver) Fingerprint(context.Context) fleet.DriverInfo {
	return fleet.DriverInfo{HealthDescription: d.unsupportedError().Error()}
}

// Start returns an error: the driver does not work on this system.
func (d *Driver) Start(context.Context, drivers.TaskConfig) (drivers.Handle, error) {
	return drivers.Handle{}, d.unsupportedError()
}

// Recover returns an error: the driver does not work on this system.
func (d *Driver) Recover(context.Context, drivers.TaskConfig, drivers.Handle) (drivers.Task, error) {
	return nil, d.unsupportedError()
}

// runSupervisor fails: no driver starts a supervisor on this system.
func runSupervisor(string) int { return 1 }
