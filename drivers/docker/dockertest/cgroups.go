package dockertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// cgroupRoots are the folders that may contain a cgroup path: one for each controller of version 1, and that of
// version 2.
func cgroupRoots() []string {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs") // the pattern is valid
	for i := range roots {
		roots[i] = filepath.Dir(roots[i])
	}
	return append(roots, "/sys/fs/cgroup")
}

// findCgroups adds the paths of a container's cgroups to groups. The container's id makes a path unique.
func findCgroups(pid int, groups map[string]bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return // it has just ended
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && len(filepath.Base(fields[2])) >= len("0123456789ab")*2 {
			groups[fields[2]] = true
		}
	}
}

// removeCgroups removes cgroups whose processes have been killed. It reports whether all are removed: the kernel
// refuses while a process is still exiting.
func removeCgroups(groups map[string]bool) bool {
	gone := true
	for _, root := range cgroupRoots() {
		for group := range groups {
			err := os.Remove(filepath.Join(root, group))
			gone = gone && (err == nil || errors.Is(err, os.ErrNotExist))
		}
	}
	return gone
}
