//go:build !linux

package oci

import (
	"context"

	"skerry/drivers"
	"skerry/drivers/supervised"
	"skerry/fleet"
)

// Describe returns an error: there are no containers on this system.
func (i *Isolation) Describe(context.Context) (string, error) {
	return "", fleet.Errorf(fleet.CodeUnsupported, "this system is not supported").WithHint("it needs Linux")
}

// Process returns an error: there are no containers on this system.
func (i *Isolation) Process(context.Context, drivers.TaskConfig, Program) (supervised.Process, error) {
	_, err := i.Describe(context.Background())
	return supervised.Process{}, err
}
