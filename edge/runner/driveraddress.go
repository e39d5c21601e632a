package runner

import (
	"context"
	"slices"
	"time"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/pace"
)

// driverAddressInterval is the pause before a driver is asked again for the address of a task that has none yet.
const driverAddressInterval = time.Second

// DriverAddress is a Hook that journals the address of a task in a network that its driver made, for services with the
// address mode driver. It prepares and releases nothing.
type DriverAddress struct {
	Drivers map[string]drivers.Driver // by name
}

// Name returns the hook's name for messages.
func (DriverAddress) Name() string { return "address of the driver" }

// Prepare does nothing.
func (DriverAddress) Prepare(context.Context, *Preparation) error { return nil }

// Release does nothing.
func (DriverAddress) Release(context.Context, fleet.Alloc) error { return nil }

// Watch asks the driver until the task has an address, and journals it, which stays the same as long as the attempt
// runs. It returns at once if no service of the task asks for it.
func (h DriverAddress) Watch(ctx context.Context, p *Preparation, control TaskControl) {
	source, ok := h.Drivers[p.Task.Driver].(drivers.Addresser)
	if !ok || !usesDriverAddress(p.Task) {
		return
	}
	for {
		address, err := source.TaskAddress(ctx, *p.Config)
		if err == nil && address != "" {
			_ = control.Address(ctx, address) // an error means that the attempt has ended
			return
		}
		if !pace.Rest(ctx, driverAddressInterval) {
			return
		}
	}
}

// usesDriverAddress reports whether a service of a task, or a check of it, has the address mode driver.
func usesDriverAddress(t *fleet.Task) bool {
	return slices.ContainsFunc(t.Services, func(s fleet.Service) bool {
		return s.AddressMode == fleet.AddressDriver ||
			slices.ContainsFunc(s.Checks, func(c fleet.ServiceCheck) bool { return c.AddressMode == fleet.AddressDriver })
	})
}
