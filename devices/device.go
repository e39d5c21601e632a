// Package devices is the contract of device kinds. Each folder below it finds one kind of hardware;
// devicetest is the suite that all of them pass. The package starts no goroutine and stores nothing.
package devices

import (
	"context"

	"skerry/fleet"
)

// Finder finds the devices of one kind. Find returns them ordered by ID. The error names the devices
// that cannot be read; the others are returned with it.
type Finder interface {
	Kind() string
	Find(ctx context.Context) ([]fleet.Device, error)
}
