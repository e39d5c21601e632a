// Package usage computes what tasks, allocations and machines use from two readings of their
// counters. The edge's runner, fingerprints and local API call it.
//
// It is pure: it starts no goroutine, reads no clock and does no I/O.
package usage

import (
	"strconv"
	"time"

	"skerry/fleet"
)

var (
	measuredMemory = []string{"RSS", "Swap", "Usage"}
	measuredCPU    = []string{"System Mode", "User Mode", "Percent", "Total Ticks"}
)

// zeroUsage returns the usage of an idle process.
func zeroUsage() *Resources {
	return &Resources{MemoryStats: &Memory{Measured: measuredMemory}, CpuStats: &CPU{Measured: measuredCPU}}
}

func addUsage(u *Resources, o *Resources) {
	u.MemoryStats.RSS += o.MemoryStats.RSS
	u.MemoryStats.Swap += o.MemoryStats.Swap
	u.MemoryStats.Usage += o.MemoryStats.Usage
	u.CpuStats.SystemMode += o.CpuStats.SystemMode
	u.CpuStats.UserMode += o.CpuStats.UserMode
	u.CpuStats.Percent += o.CpuStats.Percent
	u.CpuStats.TotalTicks += o.CpuStats.TotalTicks
}

// OfTask returns what a task's processes used between two readings, took apart, on cores of mhz.
// A process that began in between counts in full; one that ended in between does not count.
func OfTask(before, after []fleet.Consumed, took time.Duration, mhz float64, at int64) *Task {
	type process struct {
		pid   int
		start uint64
	}
	known := make(map[process]fleet.Consumed, len(before))
	for _, c := range before {
		known[process{c.PID, c.Start}] = c
	}
	task := &Task{ResourceUsage: zeroUsage(), Timestamp: at, Pids: make(map[string]*Resources, len(after))}
	for _, c := range after {
		old := known[process{c.PID, c.Start}]
		one := zeroUsage()
		one.MemoryStats.RSS, one.MemoryStats.Swap, one.MemoryStats.Usage = c.RSS, c.Swap, c.RSS+c.Swap
		one.CpuStats.UserMode = percentOf(c.User-old.User, took)
		one.CpuStats.SystemMode = percentOf(c.System-old.System, took)
		one.CpuStats.Percent = one.CpuStats.UserMode + one.CpuStats.SystemMode
		one.CpuStats.TotalTicks = one.CpuStats.Percent / 100 * mhz
		task.Pids[strconv.Itoa(c.PID)] = one
		addUsage(task.ResourceUsage, one)
	}
	return task
}

// percentOf returns used in percent of took, and 0 where either is not positive.
func percentOf(used, took time.Duration) float64 {
	if took <= 0 || used <= 0 {
		return 0
	}
	return 100 * float64(used) / float64(took)
}

// OfAlloc adds up the usage of an allocation's tasks.
func OfAlloc(tasks map[string]*Task, at int64) *Alloc {
	a := &Alloc{ResourceUsage: zeroUsage(), Tasks: tasks, Timestamp: at}
	for _, t := range tasks {
		addUsage(a.ResourceUsage, t.ResourceUsage)
	}
	return a
}

// OfHost returns what a machine used between two readings, on cores of mhz.
func OfHost(before, after Load, mhz float64, at int64) *Host {
	h := &Host{
		Memory: &after.Memory, CPU: []HostCPU{}, DiskStats: after.Disks, AllocDirStats: after.Data,
		Uptime: uint64(after.Uptime / time.Second), Timestamp: at,
	}
	known := make(map[string]CoreTime, len(before.Cores))
	for _, c := range before.Cores {
		known[c.Name] = c
	}
	for _, c := range after.Cores {
		old, ok := known[c.Name]
		if !ok || c.User < old.User || c.System < old.System || c.Idle < old.Idle {
			continue // a core that was plugged in, or counts anew
		}
		user, system, idle := c.User-old.User, c.System-old.System, c.Idle-old.Idle
		all := float64(user + system + idle)
		if all == 0 {
			continue
		}
		core := HostCPU{CPU: c.Name, User: 100 * float64(user) / all, System: 100 * float64(system) / all, Idle: 100 * float64(idle) / all}
		core.Total = core.User + core.System
		core.TotalPercent, core.TotalTicks = core.Total, core.Total/100*mhz
		h.CPU = append(h.CPU, core)
		h.CPUTicksConsumed += core.Total / 100 * mhz
	}
	return h
}
