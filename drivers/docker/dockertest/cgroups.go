package dockertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// containerCgroup is the last element of a container's cgroup: Docker's or Podman's, with the container's id.
var containerCgroup = regexp.MustCompile(`^(libpod-|libpod-conmon-)?[0-9a-f]{64}$`)

// findCgroups adds the paths of a container's cgroups to groups. The container's id makes a path unique.
func findCgroups(pid int, groups map[string]bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return // it has just ended
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && containerCgroup.MatchString(filepath.Base(fields[2])) {
			groups[fields[2]] = true
		}
	}
}

// processesIn returns the processes in cgroups. Some have lost the parent by which listProcesses finds them.
func processesIn(groups map[string]bool) (pids []int) {
	for _, root := range cgroupRoots() {
		for group := range groups {
			b, _ := os.ReadFile(filepath.Join(root, group, "cgroup.procs")) // an error means that the cgroup is gone
			for _, field := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 && !slices.Contains(pids, pid) {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids
}

// removeCgroups removes cgroups whose processes have been killed. Its error is about one that is left: the kernel
// refuses while a process is still exiting.
func removeCgroups(groups map[string]bool) (left error) {
	for _, root := range cgroupRoots() {
		for group := range groups {
			if err := os.Remove(filepath.Join(root, group)); err != nil && !errors.Is(err, os.ErrNotExist) {
				left = err
			}
		}
	}
	return left
}
