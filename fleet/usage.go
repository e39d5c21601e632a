package fleet

import (
	"strconv"
	"time"
)

// Consumed is what a process has used since it began.
type Consumed struct {
	PID    int
	Start  uint64 // tells it from others that had its PID
	User   time.Duration
	System time.Duration
	RSS    uint64 // bytes that it has in memory now
	Swap   uint64
}

// MemoryUsage is how much memory something uses, in bytes, in Nomad's shape. Measured
// names what of it is known.
type MemoryUsage struct {
	RSS, Cache, Swap, Usage, MaxUsage, KernelUsage, KernelMaxUsage uint64
	Measured                                                       []string
}

// CPUUsage is how much processor time something uses: percents of one core, and
// TotalTicks in MHz. Measured names what of it is known.
type CPUUsage struct {
	SystemMode, UserMode, TotalTicks float64
	ThrottledPeriods, ThrottledTime  uint64
	Percent                          float64
	Measured                         []string
}

// ResourceUsage is what a process, a task or an allocation uses.
type ResourceUsage struct {
	MemoryStats *MemoryUsage
	CpuStats    *CPUUsage
	DeviceStats []any // none is measured
}

// TaskUsage is what a task uses, and each of its processes by its PID.
type TaskUsage struct {
	ResourceUsage *ResourceUsage
	Timestamp     int64 // UnixNano, by the edge's clock
	Pids          map[string]*ResourceUsage
}

// AllocUsage is what an allocation's tasks use, together and each.
type AllocUsage struct {
	ResourceUsage *ResourceUsage
	Tasks         map[string]*TaskUsage
	Timestamp     int64 // UnixNano, by the edge's clock
}

var (
	measuredMemory = []string{"RSS", "Swap", "Usage"}
	measuredCPU    = []string{"System Mode", "User Mode", "Percent", "Total Ticks"}
)

// zeroUsage is of something that uses nothing.
func zeroUsage() *ResourceUsage {
	return &ResourceUsage{MemoryStats: &MemoryUsage{Measured: measuredMemory}, CpuStats: &CPUUsage{Measured: measuredCPU}}
}

func (u *ResourceUsage) addUsage(o *ResourceUsage) {
	u.MemoryStats.RSS += o.MemoryStats.RSS
	u.MemoryStats.Swap += o.MemoryStats.Swap
	u.MemoryStats.Usage += o.MemoryStats.Usage
	u.CpuStats.SystemMode += o.CpuStats.SystemMode
	u.CpuStats.UserMode += o.CpuStats.UserMode
	u.CpuStats.Percent += o.CpuStats.Percent
	u.CpuStats.TotalTicks += o.CpuStats.TotalTicks
}

// UsageBetween is what the processes of a task used between two readings that lie took
// apart, on cores of mhz. A process that began meanwhile used all that it has; one
// that ended meanwhile is not counted.
func UsageBetween(before, after []Consumed, took time.Duration, mhz float64, at int64) *TaskUsage {
	type process struct {
		pid   int
		start uint64
	}
	known := make(map[process]Consumed, len(before))
	for _, c := range before {
		known[process{c.PID, c.Start}] = c
	}
	task := &TaskUsage{ResourceUsage: zeroUsage(), Timestamp: at, Pids: make(map[string]*ResourceUsage, len(after))}
	for _, c := range after {
		old := known[process{c.PID, c.Start}]
		one := zeroUsage()
		one.MemoryStats.RSS, one.MemoryStats.Swap, one.MemoryStats.Usage = c.RSS, c.Swap, c.RSS+c.Swap
		one.CpuStats.UserMode = percentOf(c.User-old.User, took)
		one.CpuStats.SystemMode = percentOf(c.System-old.System, took)
		one.CpuStats.Percent = one.CpuStats.UserMode + one.CpuStats.SystemMode
		one.CpuStats.TotalTicks = one.CpuStats.Percent / 100 * mhz
		task.Pids[strconv.Itoa(c.PID)] = one
		task.ResourceUsage.addUsage(one)
	}
	return task
}

// percentOf is used in percents of took; nothing took no time, and time does not run
// backwards.
func percentOf(used, took time.Duration) float64 {
	if took <= 0 || used <= 0 {
		return 0
	}
	return 100 * float64(used) / float64(took)
}

// NewAllocUsage adds up what tasks use.
func NewAllocUsage(tasks map[string]*TaskUsage, at int64) *AllocUsage {
	a := &AllocUsage{ResourceUsage: zeroUsage(), Tasks: tasks, Timestamp: at}
	for _, t := range tasks {
		a.ResourceUsage.addUsage(t.ResourceUsage)
	}
	return a
}

// Load is what a machine has done since it booted, and what of it is in use now.
type Load struct {
	Memory HostMemory
	Cores  []CoreTime
	Disks  []HostDisk
	Data   *HostDisk // where the edge's data lies; nil: not known
	Uptime time.Duration
}

// CoreTime is how a core has spent its time, in any unit.
type CoreTime struct {
	Name               string
	User, System, Idle uint64
}

// HostMemory is a machine's memory, in bytes.
type HostMemory struct{ Total, Available, Used, Free uint64 }

// HostDisk is a file system of a machine, in bytes.
type HostDisk struct {
	Device            string
	Mountpoint        string
	Size              uint64
	Used              uint64
	Available         uint64
	UsedPercent       float64
	InodesUsedPercent float64
}

// HostCPU is how a core spends its time, in percents.
type HostCPU struct {
	CPU                       string
	User, System, Idle, Total float64
	TotalPercent              float64 // as Total, by the name that Nomad has
	TotalTicks                float64 // MHz
}

// HostUsage is what a machine uses, in Nomad's shape.
type HostUsage struct {
	Memory           *HostMemory
	CPU              []HostCPU
	DiskStats        []HostDisk
	AllocDirStats    *HostDisk
	DeviceStats      []any // none is measured
	Uptime           uint64
	CPUTicksConsumed float64 // MHz of all cores together
	Timestamp        int64   // UnixNano, by the edge's clock
}

// HostUsageBetween is what a machine used between two readings, on cores of mhz.
func HostUsageBetween(before, after Load, mhz float64, at int64) *HostUsage {
	h := &HostUsage{
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
