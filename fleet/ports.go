package fleet

// MaxPort is the highest port.
const MaxPort = 65535

// DefaultHostNetwork is the network of a node that ports are of where a job names
// none.
const DefaultHostNetwork = "default"

// AttributeIPAddress is the attribute that holds the address by which others reach
// what runs on a node: that of its DefaultHostNetwork.
const AttributeIPAddress = "unique.network.ip-address"

// HostNetwork is an address of a node that ports may be given out on. Several may
// have one name: then any of them will do.
type HostNetwork struct {
	Name          string
	IP            string
	ReservedPorts string `json:",omitempty"` // never given out: "22,80,8000-8100"
}

// DynamicPorts is the range that a node's dynamic ports are of.
func (n *Node) DynamicPorts() (from, to int) {
	from, to = n.MinDynamicPort, n.MaxDynamicPort
	if from == 0 {
		from = MinDynamicPort
	}
	if to == 0 {
		to = MaxDynamicPort
	}
	return from, to
}

// hostAddresses lists where ports of a host network may be given out.
func (n *Node) HostAddresses(network string) []HostNetwork {
	if network == "" {
		network = DefaultHostNetwork
	}
	var found []HostNetwork
	for _, h := range n.HostNetworks {
		if h.Name == network {
			found = append(found, h)
		}
	}
	if len(found) == 0 && network == DefaultHostNetwork {
		found = []HostNetwork{{Name: DefaultHostNetwork, IP: n.Attributes[AttributeIPAddress]}}
	}
	return found
}

// HasHostNetwork reports whether a node has an address on a network.
func (n *Node) HasHostNetwork(network string) bool { return len(n.HostAddresses(network)) > 0 }
