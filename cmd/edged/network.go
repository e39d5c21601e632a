package edged

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"skerry/drivers"
	"skerry/edge"
	"skerry/edge/network"
	"skerry/fleet"
	"skerry/fleet/placement"
	"skerry/internal/programs"
)

// Network are the flags about addresses, ports and volumes.
type Network struct {
	Advertise     string
	Hosts         []string // NAME=IP
	Volumes       []string // NAME=PATH[:ro]
	ReservedPorts string
	MinDynamic    int
	MaxDynamic    int

	PluginPath string // of CNI, with colons
	ConfigDir  string // of CNI
	Bridge     string
	Subnet     string
}

func (n *Network) addNetworkFlags(flags *pflag.FlagSet) {
	flags.StringVar(&n.Advertise, "advertise", "", "IP address at which services and ports of this edge are offered (default: the address that the edge dials hubs from)")
	flags.StringSliceVar(&n.Hosts, "host-network", nil, "NAME=IP of a host network: jobs may ask for ports on this address of the machine; may be repeated")
	flags.StringArrayVar(&n.Volumes, "host-volume", nil, "NAME=PATH of a folder that jobs may mount as a host volume, NAME=PATH:ro for a read-only one; may be repeated")
	flags.StringVar(&n.ReservedPorts, "reserved-ports", "", "ports that no job gets, static or dynamic, such as 22,8000-8100")
	flags.IntVar(&n.MinDynamic, "min-dynamic-port", fleet.MinDynamicPort, "first port to assign to jobs that ask for any port")
	flags.IntVar(&n.MaxDynamic, "max-dynamic-port", fleet.MaxDynamicPort, "last port to assign to jobs that ask for any port")
	flags.StringVar(&n.PluginPath, "cni-path", network.DefaultPluginPath, "folders of CNI plugins, separated by colons")
	flags.StringVar(&n.ConfigDir, "cni-config-dir", network.DefaultConfigDir, "folder of the CNI networks that jobs may name as cni/NAME")
	flags.StringVar(&n.Bridge, "bridge-network-name", network.DefaultBridge, "network interface of network mode bridge")
	flags.StringVar(&n.Subnet, "bridge-network-subnet", network.DefaultSubnet, "subnet of network mode bridge")
}

// newHook makes the hook that gives allocations networks of their own.
func (n *Network) newHook(dataDir string, boot fleet.BootID, known map[string]drivers.Driver, answers *programs.Answers, log *slog.Logger) (*network.Hook, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("find the data directory %s: %w", dataDir, err)
	}
	return network.New(network.Config{
		Drivers: known, Dir: dir, BootID: boot, PluginPath: n.PluginPath, ConfigDir: n.ConfigDir, Bridge: n.Bridge, Subnet: n.Subnet,
		Programs: answers, Log: log.With("component", "network"),
	})
}

// cleanupTimeout bounds the removal of networks that an earlier agent left.
const cleanupTimeout = time.Minute

// removeOldNetworks removes the networks of allocations that ended while no agent ran.
func removeOldNetworks(m edge.Machine, networks *network.Hook) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if err := networks.RemoveOrphans(ctx, m.Ended); err != nil {
		m.Log.Warn("networks of ended allocations not removed", "error", err)
	}
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
	var err error
	if said.HostVolumes, err = hostVolumes(n.Volumes); err != nil {
		return said, err
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
