package fleet

import (
	"strconv"
	"strings"
)

// Bounds of ports.
const (
	MaxPort       = 65535
	maxPortRanges = 1024
)

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

// PortSet is a set of ports.
type PortSet [MaxPort/64 + 1]uint64

// Add puts a port in.
func (s *PortSet) Add(port int) {
	if port > 0 && port <= MaxPort {
		s[port/64] |= 1 << (port % 64)
	}
}

// Has reports whether a port is in the set.
func (s *PortSet) Has(port int) bool {
	return port > 0 && port <= MaxPort && s[port/64]&(1<<(port%64)) != 0
}

// ParsePorts reads a list of ports and ranges, such as "22,80,8000-8100". They may
// overlap and come in any order.
func ParsePorts(spec string) (*PortSet, error) {
	set := &PortSet{}
	if strings.TrimSpace(spec) == "" {
		return set, nil
	}
	parts := strings.Split(spec, ",")
	if len(parts) > maxPortRanges {
		return nil, Errorf(CodeInvalid, "read ports: %d ranges, at most %d", len(parts), maxPortRanges)
	}
	for _, part := range parts {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := parsePort(first)
		if err != nil {
			return nil, Errorf(CodeInvalid, "read ports %q: %v", part, err)
		}
		to := from
		if isRange {
			if to, err = parsePort(last); err != nil {
				return nil, Errorf(CodeInvalid, "read ports %q: %v", part, err)
			}
		}
		if to < from {
			return nil, Errorf(CodeInvalid, "read ports %q: the range ends before it begins", part)
		}
		for p := from; p <= to; p++ {
			set.Add(p)
		}
	}
	return set, nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return 0, Errorf(CodeInvalid, "%q is not a port", s)
	}
	if n < 1 || n > MaxPort {
		return 0, Errorf(CodeInvalid, "port %d is not within 1 to %d", n, MaxPort)
	}
	return n, nil
}

// ValidatePorts reports what is wrong with what a node says of its ports.
func (n *Node) ValidatePorts() error {
	if _, err := ParsePorts(n.ReservedPorts); err != nil {
		return err
	}
	for _, h := range n.HostNetworks {
		if _, err := ParsePorts(h.ReservedPorts); err != nil {
			return Errorf(CodeInvalid, "host network %s: %v", h.Name, err)
		}
	}
	from, to := n.DynamicPorts()
	if from < 1 || to > MaxPort || from > to {
		return Errorf(CodeInvalid, "dynamic ports are from %d to %d, which is no range of ports", from, to)
	}
	return nil
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
func (n *Node) hostAddresses(network string) []HostNetwork {
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
func (n *Node) HasHostNetwork(network string) bool { return len(n.hostAddresses(network)) > 0 }
