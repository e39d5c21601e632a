package fleet

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// maxCoresShown bounds how many cores the JSON of a node lists: an edge may say any number.
const maxCoresShown = 4096

// The parts of a node's JSON that differ in their structure from the noun.
type (
	diskShape    struct{ DiskMB int }
	nodeCPUShape struct {
		CpuShares          int
		TotalCpuCores      int
		ReservableCpuCores []int
	}
	nodeResourcesShape struct {
		Cpu            nodeCPUShape
		Memory         memoryShape
		Disk           diskShape
		Devices        []deviceShape
		Networks       []networkShape
		NodeNetworks   []nodeNetworkShape
		Processors     struct{ Topology topologyShape }
		MinDynamicPort int `json:",omitempty"`
		MaxDynamicPort int `json:",omitempty"`
	}
	nodeReservedShape struct {
		Cpu      cpuShape
		Memory   memoryShape
		Disk     diskShape
		Networks reservedNetworksShape
	}
	reservedNetworksShape struct{ ReservedHostPorts string }
	// topologyShape is one memory node with all cores: edges do not look further.
	topologyShape struct {
		NodeIDs   []int
		Distances [][]int
		Cores     []coreShape
	}
	coreShape struct {
		SocketID, NodeID, ID            int
		Grade, Disable                  bool
		BaseSpeed, MaxSpeed, GuessSpeed int
	}
	nodeNetworkShape struct {
		Mode, Device, MacAddress string
		Speed                    int
		Addresses                []nodeAddressShape
	}
	nodeAddressShape struct{ Family, Alias, Address, ReservedPorts, Gateway string }
	hostNetworkShape struct {
		Name          string
		CIDR          string // of the first address
		Interface     string // not looked for
		ReservedPorts string
		Addresses     []HostNetwork
	}
	// hostVolumeShape has the volume's name twice, as Nomad's nodes.
	hostVolumeShape struct {
		Name, Path string
		ReadOnly   bool
		ID         VolumeID
	}
	deviceShape struct {
		Vendor, Type, Name string
		Instances          []instanceShape
		Attributes         map[string]attributeShape
	}
	instanceShape struct {
		ID                string
		Healthy           bool
		HealthDescription string
	}
	attributeShape struct{ String string }

	plainNode Node
	nodeShape struct {
		*plainNode
		Drain                   bool
		NodeMaxAllocs           int
		HostNetworks            map[string]hostNetworkShape
		HostVolumes             map[string]hostVolumeShape
		Links, Meta, Attributes map[string]string
		NodeResources           nodeResourcesShape
		ReservedResources       nodeReservedShape
	}
)

// MarshalJSON adds what Nomad's clients read beside what a node is: its resources in their
// shape, and maps that are never null.
func (n Node) MarshalJSON() ([]byte, error) {
	all, reserved := n.resourcesShape(), n.reservedShape()
	shape := nodeShape{
		plainNode: (*plainNode)(&n), Drain: n.DrainStrategy != nil, NodeMaxAllocs: n.MaxAllocs, HostNetworks: n.hostNetworkShapes(), HostVolumes: n.hostVolumeShapes(),
		Links: map[string]string{}, Meta: n.Meta, Attributes: n.Attributes, NodeResources: all, ReservedResources: reserved,
	}
	if shape.Meta == nil {
		shape.Meta = map[string]string{}
	}
	if shape.Attributes == nil {
		shape.Attributes = map[string]string{}
	}
	return json.Marshal(shape)
}

// ResourcesShapes are NodeResources and ReservedResources as the JSON of the node has them.
func (n *Node) ResourcesShapes() (all, reserved any) {
	return n.resourcesShape(), n.reservedShape()
}

func (n *Node) resourcesShape() nodeResourcesShape {
	cores := min(max(n.CoreCount(), 0), maxCoresShown)
	all := nodeResourcesShape{
		Cpu:    nodeCPUShape{CpuShares: n.Resources.CPU, TotalCpuCores: cores, ReservableCpuCores: make([]int, cores)},
		Memory: memoryShape{MemoryMB: n.Resources.MemoryMB}, Disk: diskShape{n.Resources.DiskMB}, Devices: deviceShapes(n.Devices, n.MissingDevices),
	}
	for i := range all.Cpu.ReservableCpuCores {
		all.Cpu.ReservableCpuCores[i] = i
		core := coreShape{ID: i, Grade: true, BaseSpeed: n.CoreMHz()}
		all.Processors.Topology.Cores = append(all.Processors.Topology.Cores, core)
	}
	all.Processors.Topology.NodeIDs, all.Processors.Topology.Distances = []int{0}, [][]int{{10}}
	n.networkShapes(&all)
	return all
}

func (n *Node) reservedShape() nodeReservedShape {
	r := n.Reserved
	return nodeReservedShape{
		Cpu: cpuShape{CpuShares: r.CPU}, Memory: memoryShape{MemoryMB: r.MemoryMB}, Disk: diskShape{r.DiskMB},
		Networks: reservedNetworksShape{n.ReservedPorts},
	}
}

// UnmarshalJSON reads what MarshalJSON writes, and Nomad's own nodes.
func (n *Node) UnmarshalJSON(data []byte) error {
	shape := nodeShape{plainNode: (*plainNode)(n)}
	if err := json.Unmarshal(data, &shape); err != nil {
		return err
	}
	// What Nomad's clients need to be there says no more than what is not there.
	if n.Meta = shape.Meta; len(n.Meta) == 0 {
		n.Meta = nil
	}
	if n.Attributes = shape.Attributes; len(n.Attributes) == 0 {
		n.Attributes = nil
	}
	n.HostNetworks = nil
	for _, name := range slices.Sorted(maps.Keys(shape.HostNetworks)) {
		n.HostNetworks = append(n.HostNetworks, shape.HostNetworks[name].Addresses...)
	}
	n.HostVolumes = nil
	if len(shape.HostVolumes) > 0 {
		n.HostVolumes = make(map[string]HostVolume, len(shape.HostVolumes))
	}
	for name, v := range shape.HostVolumes {
		n.HostVolumes[name] = HostVolume{v.Path, v.ReadOnly, v.ID}
	}
	return nil
}

// hostVolumeShapes are the host volumes of a node, by name.
func (n *Node) hostVolumeShapes() map[string]hostVolumeShape {
	shapes := make(map[string]hostVolumeShape, len(n.HostVolumes))
	for name, v := range n.HostVolumes {
		shapes[name] = hostVolumeShape{name, v.Path, v.ReadOnly, v.ID}
	}
	return shapes
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

// networkShapes adds the addresses of a node, its default one first, where it says
// any, and the range of its dynamic ports.
func (n *Node) networkShapes(r *nodeResourcesShape) {
	r.MinDynamicPort, r.MaxDynamicPort = n.DynamicPorts()
	defer func() {
		for _, mode := range n.addedNetworkModes() {
			r.Networks = append(r.Networks, networkShape{Mode: mode})
			r.NodeNetworks = append(r.NodeNetworks, nodeNetworkShape{Mode: mode, Addresses: []nodeAddressShape{}})
		}
	}()
	named := slices.DeleteFunc(slices.Clone(n.HostNetworks), func(h HostNetwork) bool { return h.Name == DefaultHostNetwork })
	for _, h := range append(n.HostAddresses(DefaultHostNetwork), named...) {
		if cidr := hostCIDR(h.IP); cidr != "" {
			r.Networks = append(r.Networks, networkShape{Mode: NetworkHost, CIDR: cidr, IP: h.IP})
			family := "ipv4"
			if strings.Contains(h.IP, ":") {
				family = "ipv6"
			}
			r.NodeNetworks = append(r.NodeNetworks, nodeNetworkShape{
				Mode: NetworkHost, Addresses: []nodeAddressShape{{Family: family, Alias: cmp.Or(h.Name, DefaultHostNetwork), Address: h.IP, ReservedPorts: h.ReservedPorts}},
			})
		}
	}
}

// addedNetworkModes are the network modes of a node beside the host's, in order.
func (n *Node) addedNetworkModes() []string {
	var modes []string
	for name := range n.Attributes {
		if mode, ok := strings.CutPrefix(name, AttributeNetworkMode); ok && mode != NetworkHost {
			modes = append(modes, mode)
		}
	}
	slices.Sort(modes)
	return modes
}

// deviceShapes groups devices of one vendor, type and name, in order of appearance. Missing ones are not healthy.
func deviceShapes(devices []Device, missing []MissingDevice) []deviceShape {
	var shapes []deviceShape
	index := map[[3]string]int{}
	add := func(d Device, instance instanceShape) {
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
		shapes[i].Instances = append(shapes[i].Instances, instance)
	}
	for _, d := range devices {
		add(d, instanceShape{ID: d.ID, Healthy: true})
	}
	for _, d := range missing {
		add(Device{Vendor: d.Vendor, Type: d.Type, Name: d.Name}, instanceShape{ID: d.ID, HealthDescription: "not found since " + d.Since.Format(time.RFC3339)})
	}
	return shapes
}
