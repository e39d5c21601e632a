//go:build !linux

package supervised

import (
	"context"
	"errors"

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

// Marker returns an error: the driver does not work on this system.
func Marker(string) (string, error) { return "", errors.ErrUnsupported }

// UseUser returns an error: the driver does not work on this system.
func (p *Process) UseUser(drivers.TaskConfig) error { return errors.ErrUnsupported }

// UseCgroup returns an error: the driver does not work on this system.
func (p *Process) UseCgroup(drivers.TaskConfig) error { return errors.ErrUnsupported }

// CgroupVersion returns an error: there are no cgroups on this system.
func CgroupVersion() (string, error) { return "", errors.ErrUnsupported }
