//go:build !linux

package edge

import (
	"time"

	"skerry/fleet"
)

// bootClock treats every start of the agent as a boot: it draws a boot id and returns a clock of the time since
// now. relative is true. Running tasks are then found by asking the drivers.
func bootClock() (id fleet.BootID, mono func() time.Duration, relative bool, err error) {
	start := time.Now()
	return fleet.BootID(fleet.NewUUID(nil)), func() time.Duration { return time.Since(start) }, true, nil
}
