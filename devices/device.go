// Package devices is the contract of device kinds. Each folder below it finds one kind of hardware;
// devicetest is the suite that all of them pass. The package starts no goroutine and stores nothing.
package devices

import (
	"context"

	"skerry/fleet"
)

// Finder finds the devices of one kind on this machine.
type Finder interface {
	// Kind returns the kind, for example "usb".
	Kind() string
	// Find returns the devices of that kind, ordered by ID, and starts nothing. If some cannot be read, it
	// returns the others, and an error that names those.
	Find(ctx context.Context) ([]fleet.Device, error)
}
