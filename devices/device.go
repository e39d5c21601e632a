// Package devices is the contract for finding hardware: one folder below it a
// kind of hardware, devicetest the suite that all of them pass. Nothing here
// starts a goroutine or persists anything.
package devices

import (
	"context"

	"skerry/fleet"
)

// Finder finds the devices of one kind. Find returns them ordered by ID; what
// cannot be read is left out and named in the error, and what was found is still
// returned.
type Finder interface {
	Kind() string
	Find(ctx context.Context) ([]fleet.Device, error)
}
