package dockertest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// UnmountBelow detaches the mounts below a folder, the newest first, as a reboot does.
func UnmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	lines := strings.Split(string(mounts), "\n")
	slices.Reverse(lines)
	var errs []error
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			if err := syscall.Unmount(fields[1], syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
				errs = append(errs, fmt.Errorf("unmount %s: %w", fields[1], err))
			}
		}
	}
	return errors.Join(errs...)
}
