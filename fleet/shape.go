package fleet

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
)

// What of Nomad's JSON differs in its structure from the nouns: the resources of
// allocations and nodes. Everything else is told by the field names.
type (
	cpuShape struct {
		CpuShares     int
		ReservedCores []int `json:",omitempty"`
	}
	memoryShape struct {
		MemoryMB    int
		MemoryMaxMB int `json:",omitempty"`
	}
	diskShape struct{ DiskMB int }

	taskResourcesShape struct {
		Cpu     cpuShape
		Memory  memoryShape
		Devices []AllottedDevice `json:",omitempty"`
	}
	sharedShape struct {
		DiskMB   int
		Networks []networkShape `json:",omitempty"`
		Ports    []portShape    `json:",omitempty"`
	}
	networkShape struct {
		Mode          string
		CIDR          string `json:",omitempty"`
		IP            string
		ReservedPorts []Port
		DynamicPorts  []Port
	}
	portShape struct {
		Label  string
		Value  int
		To     int
		HostIP string
	}
	allocResourcesShape struct {
		Tasks  map[string]taskResourcesShape
		Shared sharedShape
	}
	nodeResourcesShape struct {
		Cpu            cpuShape
		Memory         memoryShape
		Disk           diskShape
		Devices        []deviceShape  `json:",omitempty"`
		Networks       []networkShape `json:",omitempty"`
		MinDynamicPort int            `json:",omitempty"`
		MaxDynamicPort int            `json:",omitempty"`
	}
	hostNetworkShape struct {
		Name          string
		CIDR          string // of the first address
		ReservedPorts string
		Addresses     []HostNetwork
	}
	deviceShape struct {
		Vendor, Type, Name string
		Instances          []instanceShape
		Attributes         map[string]attributeShape `json:",omitempty"`
	}
	instanceShape struct {
		ID      string
		Healthy bool
	}
	attributeShape struct{ String string }

	plainAlloc Alloc
	allocShape struct {
		*plainAlloc
		AllocatedResources *allocResourcesShape
	}
	plainNode Node
	nodeShape struct {
		*plainNode
		Drain             bool
		HostNetworks      map[string]hostNetworkShape `json:",omitempty"`
		NodeResources     nodeResourcesShape
		ReservedResources nodeResourcesShape
	}
)

// MarshalJSON writes AllocatedResources in Nomad's shape: by task where the job is
// known, else all under the group's name.
func (a Alloc) MarshalJSON() ([]byte, error) {
	return json.Marshal(allocShape{(*plainAlloc)(&a), a.resourcesShape()})
}

// ResourcesShape is AllocatedResources as the JSON of the allocation has them.
func (a *Alloc) ResourcesShape() any { return a.resourcesShape() }

func (a *Alloc) resourcesShape() *allocResourcesShape {
	res := &allocResourcesShape{Tasks: map[string]taskResourcesShape{}, Shared: a.sharedShape()}
	if g := a.Group(); g != nil && a.ofGroup(g) {
		for i := range g.Tasks {
			res.Tasks[g.Tasks[i].Name] = a.taskShape(&g.Tasks[i])
		}
	} else {
		total := a.AllocatedResources
		res.Tasks[a.TaskGroup] = taskResourcesShape{Cpu: cpuShape{CpuShares: total.CPU}, Memory: memoryShape{MemoryMB: total.MemoryMB}}
	}
	return res
}

// ofGroup reports whether the allocation takes what the tasks of the group add up to,
// but for what depends on its node.
func (a *Alloc) ofGroup(g *TaskGroup) bool {
	sum, has := Resources{DiskMB: g.EphemeralDisk.SizeMB}, a.AllocatedResources
	for _, t := range g.Tasks {
		sum = sum.Add(t.Resources.Resources)
	}
	if has.Cores > 0 {
		sum.CPU, has.CPU = 0, 0
	}
	sum.MemoryMaxMB, has.MemoryMaxMB = 0, 0
	return sum == has
}

// taskShape is what one task has.
func (a *Alloc) taskShape(t *Task) taskResourcesShape {
	shape := taskResourcesShape{Cpu: cpuShape{CpuShares: t.Resources.CPU}, Memory: memoryShape{MemoryMB: t.Resources.MemoryMB}}
	if a.AllocatedResources.MemoryMaxMB > 0 {
		shape.Memory.MemoryMaxMB = t.Resources.MemoryMaxMB
	}
	if a.Allotment != nil {
		given := a.Allotment.Tasks[t.Name]
		shape.Cpu.ReservedCores, shape.Devices = given.Cores, given.Devices
	}
	if t.Resources.Cores > 0 && a.AllocatedResources.Cores > 0 {
		// The cpu of whole cores is shared out by how many a task has.
		rest := a.AllocatedResources.CPU - a.sharesOf()
		shape.Cpu.CpuShares += rest * t.Resources.Cores / a.AllocatedResources.Cores
	}
	return shape
}

// sharesOf is the cpu that the tasks ask for by amount.
func (a *Alloc) sharesOf() int {
	sum := 0
	for _, t := range a.Group().Tasks {
		sum += t.Resources.CPU
	}
	return sum
}

// sharedShape is what the allocation's tasks have in common: disk and ports.
func (a *Alloc) sharedShape() sharedShape {
	shape := sharedShape{DiskMB: a.AllocatedResources.DiskMB}
	if a.Allotment == nil || len(a.Allotment.Ports) == 0 {
		return shape
	}
	n := networkShape{Mode: NetworkHost, IP: a.Allotment.Ports[0].HostIP}
	fixed := map[string]bool{}
	if g := a.Group(); g != nil {
		for _, p := range g.Ports() {
			fixed[p.Label] = p.Value > 0
		}
	}
	for _, p := range a.Allotment.Ports {
		shape.Ports = append(shape.Ports, portShape{p.Label, p.Value, p.To, p.HostIP})
		port := Port{Label: p.Label, Value: p.Value, To: p.To}
		if fixed[p.Label] {
			n.ReservedPorts = append(n.ReservedPorts, port)
		} else {
			n.DynamicPorts = append(n.DynamicPorts, port)
		}
	}
	shape.Networks = []networkShape{n}
	return shape
}

// UnmarshalJSON reads what MarshalJSON writes, and Nomad's own allocations.
func (a *Alloc) UnmarshalJSON(data []byte) error {
	shape := allocShape{plainAlloc: (*plainAlloc)(a)}
	if err := json.Unmarshal(data, &shape); err != nil {
		return err
	}
	if shape.AllocatedResources == nil {
		return nil
	}
	a.AllocatedResources = Resources{DiskMB: shape.AllocatedResources.Shared.DiskMB}
	for _, t := range shape.AllocatedResources.Tasks {
		a.AllocatedResources = a.AllocatedResources.Add(Resources{CPU: t.Cpu.CpuShares, MemoryMB: t.Memory.MemoryMB})
	}
	return nil
}

// MarshalJSON adds Drain, NodeResources and ReservedResources, as Nomad's clients read
// them, beside Resources, Reserved and Devices.
func (n Node) MarshalJSON() ([]byte, error) {
	return json.Marshal(nodeShape{(*plainNode)(&n), n.DrainStrategy != nil, n.hostNetworkShapes(), n.resourcesShape(), resourcesShape(n.Reserved)})
}

// ResourcesShapes are NodeResources and ReservedResources as the JSON of the node has them.
func (n *Node) ResourcesShapes() (all, reserved any) {
	return n.resourcesShape(), resourcesShape(n.Reserved)
}

func (n *Node) resourcesShape() nodeResourcesShape {
	all := resourcesShape(n.Resources)
	all.Devices = deviceShapes(n.Devices)
	n.networkShapes(&all)
	return all
}

// UnmarshalJSON reads what MarshalJSON writes, and Nomad's own nodes.
func (n *Node) UnmarshalJSON(data []byte) error {
	shape := nodeShape{plainNode: (*plainNode)(n)}
	if err := json.Unmarshal(data, &shape); err != nil {
		return err
	}
	n.HostNetworks = nil
	for _, name := range slices.Sorted(maps.Keys(shape.HostNetworks)) {
		n.HostNetworks = append(n.HostNetworks, shape.HostNetworks[name].Addresses...)
	}
	return nil
}

// hostNetworkShapes are the networks that a node names, by name.
func (n *Node) hostNetworkShapes() map[string]hostNetworkShape {
	shapes := make(map[string]hostNetworkShape, len(n.HostNetworks))
	for _, h := range n.HostNetworks {
		shape, ok := shapes[h.Name]
		if !ok {
			shape = hostNetworkShape{Name: h.Name, CIDR: hostCIDR(h.IP), ReservedPorts: h.ReservedPorts}
		}
		shape.Addresses = append(shape.Addresses, h)
		shapes[h.Name] = shape
	}
	return shapes
}

// hostCIDR is the network of one address; "" for what is none.
func hostCIDR(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return ""
	}
	return netip.PrefixFrom(addr, addr.BitLen()).String()
}

func resourcesShape(r Resources) nodeResourcesShape {
	return nodeResourcesShape{Cpu: cpuShape{CpuShares: r.CPU}, Memory: memoryShape{MemoryMB: r.MemoryMB}, Disk: diskShape{r.DiskMB}}
}

// networkShapes adds the addresses of a node, its default one first, where it says
// any, and the range of its dynamic ports.
func (n *Node) networkShapes(r *nodeResourcesShape) {
	r.MinDynamicPort, r.MaxDynamicPort = n.DynamicPorts()
	named := slices.DeleteFunc(slices.Clone(n.HostNetworks), func(h HostNetwork) bool { return h.Name == DefaultHostNetwork })
	for _, h := range append(n.addresses(DefaultHostNetwork), named...) {
		if cidr := hostCIDR(h.IP); cidr != "" {
			r.Networks = append(r.Networks, networkShape{Mode: NetworkHost, CIDR: cidr, IP: h.IP})
		}
	}
}

// deviceShapes groups devices of one vendor, type and name, in order of appearance.
func deviceShapes(devices []Device) []deviceShape {
	var shapes []deviceShape
	index := map[[3]string]int{}
	for _, d := range devices {
		key := [3]string{d.Vendor, d.Type, d.Name}
		i, ok := index[key]
		if !ok {
			i = len(shapes)
			index[key] = i
			attrs := make(map[string]attributeShape, len(d.Attributes))
			for k, v := range d.Attributes {
				attrs[k] = attributeShape{v}
			}
			shapes = append(shapes, deviceShape{Vendor: d.Vendor, Type: d.Type, Name: d.Name, Attributes: attrs})
		}
		shapes[i].Instances = append(shapes[i].Instances, instanceShape{ID: d.ID, Healthy: true})
	}
	return shapes
}
