//go:build !linux

package qemu

import (
	"context"

	"skerry/fleet"
)

// errUnsupported returns the error of this driver on systems other than Linux.
func errUnsupported() error {
	return fleet.Errorf(fleet.CodeUnsupported, "the driver %s is not supported on this system", Name).WithHint("it needs Linux")
}

// chooseAccelerator returns an error: the driver does not work on this system.
func chooseAccelerator(string, program) (string, error) { return "", errUnsupported() }

// findEmulator returns an error: the driver does not work on this system.
func (d *Driver) findEmulator() (program, error) { return program{}, errUnsupported() }

// fingerprintEmulator reports that the driver does not work on this system.
func (d *Driver) fingerprintEmulator(context.Context) fleet.DriverInfo {
	return fleet.DriverInfo{HealthDescription: errUnsupported().Error()}
}
