// Package cgroup makes a cgroup for a task, measures and kills the processes in it, and removes it: on cgroup v1, v2,
// and both at once (hybrid). Supervisors of tasks and drivers call it. It starts no goroutine and stores nothing: a
// cgroup lives until it is removed or the machine reboots.
package cgroup

import (
	"errors"
	"strings"
)

// parent is the cgroup in which all cgroups of tasks are.
const parent = "skerry"

// ErrUnavailable is wrapped by errors for a machine on which no cgroups can be made.
var ErrUnavailable = errors.New("no cgroups can be made here")

// Group is a cgroup of one task: its folder in each hierarchy. It is data, so that it can be recorded.
type Group struct {
	Unified string            `json:"unified,omitempty"` // folder in cgroup v2; "" if it has no controllers
	Legacy  map[string]string `json:"legacy,omitempty"`  // folders in cgroup v1, by controller
}

// Limits of a cgroup; the zero value limits nothing.
type Limits struct {
	CPUShares  int    `json:"cpu_shares,omitempty"`  // relative weight, as in cgroup v1
	CPUs       string `json:"cpus,omitempty"`        // list of cores, such as 0-1,3
	Memory     int64  `json:"memory,omitempty"`      // bytes that are never exceeded
	SoftMemory int64  `json:"soft_memory,omitempty"` // bytes to which the kernel shrinks the task under pressure
	PIDs       int64  `json:"pids,omitempty"`        // number of processes and threads
}

// controllers are the controllers of a task's cgroup. The machine may lack some.
var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "pids"}

// CleanName returns a name of a cgroup with only letters, digits, dots, dashes and underscores.
func CleanName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

// weight returns the weight of cgroup v2 for shares of v1, as OCI runtimes compute it.
func weight(shares int) int {
	shares = min(max(shares, 2), 262144)
	return 1 + (shares-2)*9999/262142
}
