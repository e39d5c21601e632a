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
func processesOf(containerID string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && isInContainer(pid, containerID) && !isZombie(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// isInContainer reports whether a process is in a container's cgroup. Podman's conmon has a cgroup of its own, with the
// container's id too.
func isInContainer(pid int, containerID string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || pid <= 1 || containerID == "" {
		return false
	}
	for line := range strings.Lines(string(b)) {
		before, _, is := strings.Cut(line, containerID)
		if is && !strings.HasSuffix(before, "conmon-") {
			return true
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
