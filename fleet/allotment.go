package fleet

import "slices"

// AssignedResources are the ports, cores and devices of its node that an allocation has. They are
// decided with the placement and never change.
type AssignedResources struct {
	Ports []AssignedPort                   `json:",omitempty"` // of the group, those of fixed numbers first
	Tasks map[string]AssignedTaskResources `json:",omitempty"`
	// Volumes are the host volumes that no other allocation of the node may write meanwhile.
	Volumes []string `json:",omitempty"`
}

// AssignedPort is a port of the host that an allocation may use.
type AssignedPort struct {
	Label  string
	Value  int
	To     int    `json:",omitempty"` // inside the network's namespace; 0: not mapped
	HostIP string `json:",omitempty"` // the address that it is a port of
	// Shared: other allocations may have it as well.
	Shared bool `json:",omitempty"`
}

// Inside returns the port in the network's namespace: To, or Value if it is not mapped.
func (p *AssignedPort) Inside() int {
	if p.To > 0 {
		return p.To
	}
	return p.Value
}

// AssignedTaskResources are the cores and devices of one task.
type AssignedTaskResources struct {
	Cores   []int            `json:",omitempty"`
	Devices []AssignedDevice `json:",omitempty"`
}

// AssignedDevice is a number of devices of one kind.
type AssignedDevice struct {
	Vendor, Type, Name string
	DeviceIDs          []string
}

// Empty reports whether nothing is assigned.
func (a *AssignedResources) Empty() bool {
	return a == nil || len(a.Ports)+len(a.Tasks)+len(a.Volumes) == 0
}

// CoreIDs lists the cores of all tasks, in order.
func (a *AssignedResources) CoreIDs() []int {
	if a == nil {
		return nil
	}
	var ids []int
	for _, t := range a.Tasks {
		ids = append(ids, t.Cores...)
	}
	slices.Sort(ids)
	return ids
}

// DeviceIDs lists the devices of all tasks, in order.
func (a *AssignedResources) DeviceIDs() []string {
	if a == nil {
		return nil
	}
	var ids []string
	for _, t := range a.Tasks {
		for _, d := range t.Devices {
			ids = append(ids, d.DeviceIDs...)
		}
	}
	slices.Sort(ids)
	return ids
}

// SoleVolumes are the names of the host volumes that one allocation of the group needs for itself, in order.
func (g *TaskGroup) SoleVolumes() []string {
	var names []string
	for _, v := range g.Volumes {
		if v.Type == VolumeHost && v.AccessMode == AccessSingleWriter && !v.ReadOnly {
			names = append(names, v.Source)
		}
	}
	slices.Sort(names)
	return names
}

// NeedsAssignedResources reports whether the group asks for ports, cores, devices or volumes of its own.
func (g *TaskGroup) NeedsAssignedResources() bool {
	if len(g.Ports())+len(g.SoleVolumes()) > 0 {
		return true
	}
	return slices.ContainsFunc(g.Tasks, func(t Task) bool { return t.Resources.Cores > 0 || len(t.Resources.Devices) > 0 })
}
