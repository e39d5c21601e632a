package proc

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cgroupMount is where the hierarchies of cgroups are: v2 itself, or the folders of v1.
const cgroupMount = "/sys/fs/cgroup"

// cgroupPatience bounds the wait until killed processes have left their cgroups.
const cgroupPatience = time.Second

// cgroupPaths returns the paths of a process's cgroups, but for the roots. It is nil for a process that has ended.
func cgroupPaths(pid string) []string {
	b, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return nil
	}
	var paths []string
	for line := range strings.Lines(string(b)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[2] != "/" && !strings.HasPrefix(parts[2], "/..") {
			paths = append(paths, filepath.Clean(parts[2]))
		}
	}
	return paths
}

// removeCgroups removes the cgroups of killed processes in each hierarchy, as a reboot would, as far as it can: but for those
// that this process is in too, and those in which other processes stay.
func removeCgroups(paths map[string]bool) {
	for _, own := range cgroupPaths("self") {
		delete(paths, own)
	}
	hierarchies, _ := filepath.Glob(cgroupMount + "/*") // the pattern is a good one
	deadline := time.Now().Add(cgroupPatience)
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(paths))) { // children before their parents
		for _, hierarchy := range append(hierarchies, cgroupMount) {
			// A killed process takes a moment to leave its cgroup.
			for errors.Is(syscall.Rmdir(filepath.Join(hierarchy, path)), syscall.EBUSY) && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
		}
	}
}
