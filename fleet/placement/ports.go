package placement

import (
	"strconv"
	"strings"

	"skerry/fleet"
)

// maxPortRanges bounds a list of ports.
const maxPortRanges = 1024

// PortSet is a set of ports.
type PortSet [fleet.MaxPort/64 + 1]uint64

// Add puts a port in.
func (s *PortSet) Add(port int) {
	if port > 0 && port <= fleet.MaxPort {
		s[port/64] |= 1 << (port % 64)
	}
}

// Has reports whether a port is in the set.
func (s *PortSet) Has(port int) bool {
	return port > 0 && port <= fleet.MaxPort && s[port/64]&(1<<(port%64)) != 0
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
		return nil, fleet.Errorf(fleet.CodeInvalid, "read ports: there are %d ranges, at most %d are allowed", len(parts), maxPortRanges)
	}
	for _, part := range parts {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := parsePort(first)
		if err != nil {
			return nil, fleet.Errorf(fleet.CodeInvalid, "read ports %q: %w", part, err)
		}
		to := from
		if isRange {
			if to, err = parsePort(last); err != nil {
				return nil, fleet.Errorf(fleet.CodeInvalid, "read ports %q: %w", part, err)
			}
		}
		if to < from {
			return nil, fleet.Errorf(fleet.CodeInvalid, "read ports %q: the range ends before it begins", part)
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
		return 0, fleet.Errorf(fleet.CodeInvalid, "%q is not a port", s)
	}
	if n < 1 || n > fleet.MaxPort {
		return 0, fleet.Errorf(fleet.CodeInvalid, "port %d is not within 1 to %d", n, fleet.MaxPort)
	}
	return n, nil
}

// ValidatePorts reports what is wrong with what a node says of its ports.
func ValidatePorts(n *fleet.Node) error {
	if _, err := ParsePorts(n.ReservedPorts); err != nil {
		return err
	}
	for _, h := range n.HostNetworks {
		if _, err := ParsePorts(h.ReservedPorts); err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "host network %s: %w", h.Name, err)
		}
	}
	from, to := n.DynamicPorts()
	if from < 1 || to > fleet.MaxPort || from > to {
		return fleet.Errorf(fleet.CodeInvalid, "dynamic ports: %d to %d is not a range of ports", from, to)
	}
	return nil
}
