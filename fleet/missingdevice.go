package fleet

import (
	"fmt"
	"time"
)

// MissingDevice is a device that an allocation has and the edge of its node does not find, for example because it was unplugged.
type MissingDevice struct {
	Vendor, Type, Name string
	ID                 string
	AllocID            AllocID   // that has it
	Since              time.Time // when the cluster heard that it is gone
}

// String returns the device as people name it: VENDOR/TYPE/NAME (ID).
func (d MissingDevice) String() string {
	return fmt.Sprintf("%s/%s/%s (%s)", d.Vendor, d.Type, d.Name, d.ID)
}

// IsSame reports whether o is the same device of the same allocation.
func (d MissingDevice) IsSame(o MissingDevice) bool { return d.ID == o.ID && d.AllocID == o.AllocID }
