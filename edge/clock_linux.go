package edge

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry/fleet"
)

// bootClock returns the kernel's boot id, and a clock of the time since that boot that also counts while the
// machine sleeps. relative is false: the clock counts from the boot.
func bootClock() (id fleet.BootID, mono func() time.Duration, relative bool, err error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", nil, false, fmt.Errorf("read the boot id: %w", err)
	}
	return fleet.BootID(strings.TrimSpace(string(b))), sinceBoot, false, nil
}

// sinceBoot returns the time since the machine booted.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err)) // every Linux that Go supports has it
	}
	return time.Duration(t.Nano())
}
