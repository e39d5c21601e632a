package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cgroupMount is where the hierarchies of cgroups are: v2 itself, or the folders of v1.
const cgroupMount = "/sys/fs/cgroup"

// cgroupPaths returns the paths of a process's cgroups, but for the roots. It is nil for a process that has ended.
func cgroupPaths(pid string) []string {
	b, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return nil
	}
	var paths []string
	for line := range strings.Lines(string(b)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[2] != "/" {
			paths = append(paths, filepath.Clean(parts[2]))
		}
	}
	return paths
}

// removeCgroups removes the cgroups of killed processes in each hierarchy, as a reboot would, but for those that this
// process is in too. It leaves cgroups that have other processes.
func removeCgroups(paths map[string]bool) error {
	for _, own := range cgroupPaths("self") {
		delete(paths, own)
	}
	hierarchies, err := filepath.Glob(cgroupMount + "/*")
	if err != nil {
		return fmt.Errorf("find hierarchies of cgroups: %w", err)
	}
	var errs []error
	for path := range paths {
		for _, hierarchy := range append(hierarchies, cgroupMount) {
			errs = append(errs, removeCgroup(filepath.Join(hierarchy, path)))
		}
	}
	return errors.Join(errs...)
}

// removeCgroup removes a cgroup unless other processes stay in it. A killed process takes a moment to leave it.
func removeCgroup(dir string) error {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		err := syscall.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENOTEMPTY):
			return nil
		case !errors.Is(err, syscall.EBUSY):
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		if time.Now().After(deadline) {
			return nil
		}
	}
}
