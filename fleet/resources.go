package fleet

// Resources is an amount of what a machine has: asked for by a task, offered by
// a node. Zero is nothing.
type Resources struct {
	CPU         int // MHz
	MemoryMB    int
	DiskMB      int
	Cores       int // whole cores, in place of CPU
	MemoryMaxMB int // what a task may take where there is memory to spare; 0: MemoryMB
}

// TaskResources is what one task asks for: an amount, and what is no amount.
type TaskResources struct {
	Resources
	Networks  []NetworkResource
	Devices   []RequestedDevice
	NUMA      *NUMA
	SecretsMB int // size of the secrets folder, which is in memory; 0: the edge's default, which is not counted
}

// WithSecrets returns the resources with the memory of the secrets folder.
func (r TaskResources) WithSecrets() Resources {
	all := r.Resources
	all.MemoryMB += r.SecretsMB
	if all.MemoryMaxMB > 0 {
		all.MemoryMaxMB += r.SecretsMB
	}
	return all
}

// Defaults and minima of a task's Resources, as Nomad has them.
const (
	DefaultCPU      = 100
	DefaultMemoryMB = 300
	DefaultDiskMB   = 300 // of a group, not of each task
	MinCPU          = 1
	MinMemoryMB     = 10
	MinDiskMB       = 10
)

// Add returns r + o.
func (r Resources) Add(o Resources) Resources {
	return Resources{
		CPU: r.CPU + o.CPU, Cores: r.Cores + o.Cores, MemoryMB: r.MemoryMB + o.MemoryMB,
		MemoryMaxMB: r.MemoryMaxMB + o.MemoryMaxMB, DiskMB: r.DiskMB + o.DiskMB,
	}
}

// Sub returns r - o; a dimension may become negative.
func (r Resources) Sub(o Resources) Resources {
	return Resources{
		CPU: r.CPU - o.CPU, Cores: r.Cores - o.Cores, MemoryMB: r.MemoryMB - o.MemoryMB,
		MemoryMaxMB: r.MemoryMaxMB - o.MemoryMaxMB, DiskMB: r.DiskMB - o.DiskMB,
	}
}

// largerOfEach returns the larger of r and o in each dimension.
func (r Resources) largerOfEach(o Resources) Resources {
	return Resources{
		CPU: max(r.CPU, o.CPU), Cores: max(r.Cores, o.Cores), MemoryMB: max(r.MemoryMB, o.MemoryMB),
		MemoryMaxMB: max(r.MemoryMaxMB, o.MemoryMaxMB), DiskMB: max(r.DiskMB, o.DiskMB),
	}
}

// Exceeds returns the name of the first dimension in which r is more than have
// ("cpu", "memory", "disk"), or "" if r fits.
func (r Resources) Exceeds(have Resources) string {
	switch {
	case r.CPU > have.CPU:
		return "cpu"
	case r.MemoryMB > have.MemoryMB:
		return "memory"
	case r.DiskMB > have.DiskMB:
		return "disk"
	}
	return ""
}

// Device is one piece of hardware that an edge found: Kind names the finder
// ("usb"), ID is stable across reboots where the hardware has a serial number.
type Device struct {
	Kind       string
	Vendor     string
	Type       string
	Name       string
	ID         string
	Attributes map[string]string
}

// DeviceNode is a device node that a task gets. Permissions are those of cgroups: r, w and m (mknod).
type DeviceNode struct{ HostPath, TaskPath, Permissions string }
