package fleet

// Network modes. A mode "cni/NAME" names a network that a plugin makes.
const (
	NetworkHost   = "host"
	NetworkBridge = "bridge"
	NetworkNone   = "none"
)

// Dynamic ports are given out of this range where a node says nothing else.
const (
	MinDynamicPort = 20_000
	MaxDynamicPort = 32_000
)

// NetworkResource is what a group (or, as in old job files, a task) asks of its
// node's network. A task's ports are among those of its allocation.
type NetworkResource struct {
	Mode          string // default NetworkHost
	Device        string
	CIDR          string
	IP            string
	Hostname      string
	MBits         int // of old job files; nothing is made of it
	DNS           *DNSConfig
	ReservedPorts []Port // asked for by number
	DynamicPorts  []Port // any free one will do
	CNI           *CNIConfig
}

// Port is one port of a network.
type Port struct {
	Label           string
	Value           int    // on the host; 0: not given out yet
	To              int    // inside the network's namespace; 0: not mapped, -1: the same as on the host
	HostNetwork     string // which of the node's networks; "" or "default": the node's own
	IgnoreCollision bool   // several allocations of a node may share it
}

// DNSConfig is how names are resolved inside a network's namespace.
type DNSConfig struct {
	Servers  []string
	Searches []string
	Options  []string
}

// CNIConfig is what a network plugin is called with.
type CNIConfig struct {
	Args map[string]string
}

// NetworkStatus is how an allocation with a network of its own is reached there.
type NetworkStatus struct {
	InterfaceName string
	Address       string
}

// AttributeNetworkMode is the attribute "1" of a node that can run groups in the network mode behind it.
const AttributeNetworkMode = "network.mode."

// NetworkMode returns the mode of the group's network; a group without one is in the host's.
func (g *TaskGroup) NetworkMode() string {
	if len(g.Networks) == 0 || g.Networks[0].Mode == "" {
		return NetworkHost
	}
	return g.Networks[0].Mode
}

// HasOwnAddress reports whether allocations of the group have an address of their own: with the mode bridge or cni/NAME.
func (g *TaskGroup) HasOwnAddress() bool {
	mode := g.NetworkMode()
	return mode != NetworkHost && mode != NetworkNone
}

// HasNetworkMode reports whether the node can run groups in a network mode.
func (n *Node) HasNetworkMode(mode string) bool {
	return mode == NetworkHost || n.Attributes[AttributeNetworkMode+mode] == "1"
}

// Ports returns all ports of a group's networks and of its tasks' own, in each network those of fixed numbers first.
func (g *TaskGroup) Ports() []Port {
	ports := networkPorts(g.Networks)
	for i := range g.Tasks {
		ports = append(ports, g.Tasks[i].Ports()...)
	}
	return ports
}

// Ports returns the ports of the network blocks of the task itself, as old job files have them.
func (t *Task) Ports() []Port { return networkPorts(t.Resources.Networks) }

// networkPorts returns the ports of networks, in each of them those of fixed numbers first.
func networkPorts(networks []NetworkResource) []Port {
	var ports []Port
	for _, n := range networks {
		ports = append(append(ports, n.ReservedPorts...), n.DynamicPorts...)
	}
	return ports
}
