package usage

import "time"

// Memory is how much memory something uses, in bytes, in Nomad's shape. Measured
// names what of it is known.
type Memory struct {
	RSS, Cache, Swap, Usage, MaxUsage, KernelUsage, KernelMaxUsage uint64
	Measured                                                       []string
}

// CPU is how much processor time something uses: percents of one core, and
// TotalTicks in MHz. Measured names what of it is known.
type CPU struct {
	SystemMode, UserMode, TotalTicks float64
	ThrottledPeriods, ThrottledTime  uint64
	Percent                          float64
	Measured                         []string
}

// Resources is what a process, a task or an allocation uses.
type Resources struct {
	MemoryStats *Memory
	CpuStats    *CPU
	DeviceStats []DeviceGroup // none is measured of a task
}

// Task is what a task uses, and each of its processes by its PID.
type Task struct {
	ResourceUsage *Resources
	Timestamp     int64 // UnixNano, by the edge's clock
	Pids          map[string]*Resources
}

// Alloc is what an allocation's tasks use, together and each.
type Alloc struct {
	ResourceUsage *Resources
	Tasks         map[string]*Task
	Timestamp     int64 // UnixNano, by the edge's clock
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

// Host is what a machine uses, in Nomad's shape.
type Host struct {
	Memory           *HostMemory
	CPU              []HostCPU
	DiskStats        []HostDisk
	AllocDirStats    *HostDisk
	DeviceStats      []DeviceGroup // of the devices that can be measured
	Uptime           uint64
	CPUTicksConsumed float64 // MHz of all cores together
	Timestamp        int64   // UnixNano, by the edge's clock
}
