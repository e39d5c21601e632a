package docker

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processesOf returns the processes that run in a container's cgroup. It reads the kernel's list of processes, as the
// daemon may not know them, and as the path of the cgroup differs between daemons.
func processesOf(containerID string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && isInContainer(pid, containerID) && !isZombie(pid) {
			found = append(found, pid)
		}
	}
	return found, nil
}

// isInContainer reports whether a process is in a container's cgroup.
func isInContainer(pid int, containerID string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && pid > 1 && hasCgroupOf(string(b), containerID)
}

// hasCgroupOf reports whether the cgroups of a process, as in /proc/PID/cgroup, are those of a container: an element of the path is its id,
// or docker-ID.scope and the like. Podman's conmon and health checks have cgroups of their own, with the container's id too.
func hasCgroupOf(cgroups, containerID string) bool {
	for line := range strings.Lines(cgroups) {
		for element := range strings.SplitSeq(strings.TrimSpace(line), "/") {
			before, is := strings.CutSuffix(strings.TrimSuffix(element, ".scope"), containerID)
			if is && containerID != "" && !strings.HasSuffix(before, "conmon-") {
				return true
			}
		}
	}
	return false
}

// isZombie reports whether a process has ended, and its parent has not yet read how.
func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	state := bytes.TrimSpace(b[bytes.LastIndexByte(b, ')')+1:])
	return len(state) == 0 || state[0] == 'Z' || state[0] == 'X'
}

// killInContainer kills a process if it belongs to a container.
func killInContainer(pid int, containerID string) {
	if isInContainer(pid, containerID) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}
