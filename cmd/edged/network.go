package edged

import (
	"net"
	"strings"

	"github.com/spf13/pflag"

	"skerry/fleet"
	"skerry/fleet/placement"
)

// Network is what an edge is told of its addresses and ports.
type Network struct {
	Advertise     string
	Hosts         []string // NAME=IP
	ReservedPorts string
	MinDynamic    int
	MaxDynamic    int
}

func (n *Network) addNetworkFlags(flags *pflag.FlagSet) {
	flags.StringVar(&n.Advertise, "advertise", "", "IP address at which others reach the tasks of this edge (default: the address that it dials hubs from)")
	flags.StringSliceVar(&n.Hosts, "host-network", nil, "NAME=IP of a network on which jobs may ask for ports; may be repeated")
	flags.StringVar(&n.ReservedPorts, "reserved-ports", "", "ports that are never assigned, such as 22,8000-8100")
	flags.IntVar(&n.MinDynamic, "min-dynamic-port", fleet.MinDynamicPort, "first port to assign to jobs that ask for any port")
	flags.IntVar(&n.MaxDynamic, "max-dynamic-port", fleet.MaxDynamicPort, "last port to assign to jobs that ask for any port")
}

// networkOfNode returns what a node says of that, checked.
func (n *Network) networkOfNode() (fleet.Node, error) {
	var said fleet.Node
	if n.Advertise != "" && net.ParseIP(n.Advertise) == nil {
		return said, fleet.Errorf(fleet.CodeInvalid, "advertised address %q: not an IP address", n.Advertise)
	}
	for _, host := range n.Hosts {
		name, ip, ok := strings.Cut(host, "=")
		if !ok || name == "" || net.ParseIP(ip) == nil {
			return said, fleet.Errorf(fleet.CodeInvalid, "host network %q: not NAME=IP", host)
		}
		said.HostNetworks = append(said.HostNetworks, fleet.HostNetwork{Name: name, IP: ip})
	}
	said.ReservedPorts = n.ReservedPorts
	// What holds anyway is not said: it is no part of the description.
	if n.MinDynamic != fleet.MinDynamicPort {
		said.MinDynamicPort = n.MinDynamic
	}
	if n.MaxDynamic != fleet.MaxDynamicPort {
		said.MaxDynamicPort = n.MaxDynamic
	}
	return said, placement.ValidatePorts(&said)
}
