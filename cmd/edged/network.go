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
	flags.StringVar(&n.Advertise, "advertise", "", "IP address by which others reach what runs here (default: the one that hubs are dialed from)")
	flags.StringSliceVar(&n.Hosts, "host-network", nil, "NAME=IP of a network that ports may be asked for on; may be repeated")
	flags.StringVar(&n.ReservedPorts, "reserved-ports", "", "ports that are never given out, such as 22,8000-8100")
	flags.IntVar(&n.MinDynamic, "min-dynamic-port", fleet.MinDynamicPort, "first port that is given out where a job asks for any")
	flags.IntVar(&n.MaxDynamic, "max-dynamic-port", fleet.MaxDynamicPort, "last port that is given out where a job asks for any")
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
