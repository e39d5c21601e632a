package docker

import (
	"context"
	"time"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/pace"
)

const (
	// killPatience bounds the wait for processes that were killed. One that waits for a disk may need longer.
	killPatience = 10 * time.Second
	// firstKillPause and lastKillPause bound the time between two looks for processes that were killed.
	firstKillPause = 10 * time.Millisecond
	lastKillPause  = time.Second
	// containerIDLen is the number of digits of a container's id.
	containerIDLen = 64
)

// endProcesses kills the processes of a container that has ended, or that the daemon does not know, and waits for their end.
// A daemon that dies between a container's start and its own record of the start forgets the running container.
func (d *Driver) endProcesses(ctx context.Context, containerID string) error {
	if len(containerID) != containerIDLen { // a name: no cgroup has it
		return nil
	}
	warned := false
	deadline, pause := time.Now().Add(killPatience), firstKillPause
	for {
		left, err := processesOf(containerID)
		if err != nil {
			return drivers.Recoverable(err)
		}
		if len(left) == 0 {
			return nil
		}
		if !warned {
			d.log.Warn("processes of a container that the daemon does not run are killed", "container", fleet.Short(containerID), "pids", left)
			warned = true
		}
		for _, pid := range left {
			killInContainer(pid, containerID)
		}
		if time.Now().After(deadline) || !pace.Rest(ctx, pause) {
			return drivers.Recoverable(fleet.Errorf(fleet.CodeUnavailable, "end container %s: its processes %v still run, and the %s daemon does not know them",
				fleet.Short(containerID), left, d.cfg.Name).WithHint("kill them on the machine; a process in state D waits for a disk or a network file system"))
		}
		pause = min(2*pause, lastKillPause)
	}
}
