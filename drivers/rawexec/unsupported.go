//go:build !linux

package rawexec

import (
	"context"

	"skerry/drivers"
	"skerry/fleet"
)

// unsupported returns the error of this driver on systems other than Linux.
func unsupported() error {
	return fleet.Errorf(fleet.CodeUnsupported, "start the driver %s: this system is not supported", Name).
		WithHint("it needs Linux")
}

// Fingerprint reports that the driver does not work on this system.
func (d *Driver) Fingerprint(context.Context) fleet.DriverInfo {
	return fleet.DriverInfo{HealthDescription: unsupported().Error()}
}

// Start returns an error: the driver does not work on this system.
func (d *Driver) Start(context.Context, drivers.TaskConfig) (drivers.Handle, error) {
	return drivers.Handle{}, unsupported()
}

// Recover returns an error: the driver does not work on this system.
func (d *Driver) Recover(context.Context, drivers.TaskConfig, drivers.Handle) (drivers.Task, error) {
	return nil, unsupported()
}

func runSupervisor(string) int { return 1 }
