package docker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"

	"skerry/drivers"
	"skerry/fleet"
)

// taskMode is the beginning of a network mode that joins the container of another task of the allocation.
const taskMode = "task:"

// checkNetworkKeys collects the errors of keys that do not fit the network mode of the config block. A hub refuses keys without an
// effect. An edge only warns of them, because the job may run since an earlier release.
func (o *options) checkNetworkKeys(driver string, r *reader) {
	mode := o.host.NetworkMode
	if r.isOpen(string(mode)) {
		return
	}
	if r.early {
		r.wrong = append(r.wrong, o.idleKeys(driver, mode)...)
	}
	named := mode != "" && mode.IsUserDefined() && !strings.HasPrefix(string(mode), taskMode)
	if !named && (len(o.endpoint.Aliases) > 0 || o.endpoint.IPAMConfig != nil) {
		r.wrong = append(r.wrong, "network_aliases, ipv4_address and ipv6_address need network_mode with the name of a network")
	}
}

// idleKeys returns a text for each key of the network that has no effect in a network mode. Docker refuses some of these keys, too.
func (o *options) idleKeys(driver string, mode container.NetworkMode) (idle []string) {
	joins, none := mode.IsContainer() || strings.HasPrefix(string(mode), taskMode), mode.IsNone()
	add := func(set bool, key, why string) {
		if set {
			idle = append(idle, fmt.Sprintf("%s has no effect in the network mode %q: %s", key, mode, why))
		}
	}
	if joins || none && driver == Podman {
		const why = "the container has no resolvers of its own"
		add(len(o.host.DNS) > 0, "dns_servers", why)
		add(len(o.host.DNSSearch) > 0, "dns_search_domains", why)
		add(len(o.host.DNSOptions) > 0, "dns_options", why)
	}
	if joins || none {
		const why = "the container has no ports of its own"
		add(len(o.ports) > 0, "ports", why)
		add(len(o.portMap) > 0, "port_map", why)
	}
	if joins {
		const why = "the container has that of the other one"
		add(len(o.host.ExtraHosts) > 0, "extra_hosts", why)
		add(o.config.Hostname != "" && driver == Docker, "hostname", why)
	}
	return idle
}

// idleInGroup returns a text for each key of a task that has no effect in the network of its group, and for each port that is not mapped.
// mode is that of the container, which joins the namespace of the group's network if joinsGroup is true.
func (o *options) idleInGroup(driver string, mode container.NetworkMode, joinsGroup bool, cfg drivers.TaskConfig) (idle []string) {
	if !joinsGroup {
		idle = o.idleKeys(driver, mode)
	} else if name := o.config.Hostname; name != "" && name != cfg.Network.Hostname && driver == Docker {
		idle = append(idle, "hostname has no effect in the group's network: write it in the network block of the group")
	}
	for _, p := range cfg.Network.Ports {
		inside, used := o.targetPort(p, cfg)
		switch {
		case !used:
		case joinsGroup && inside != p.Inside():
			idle = append(idle, fmt.Sprintf("port_map of %q has no effect in the group's network: write to = %d in the group's port block", p.Label, inside))
		case mode.IsHost() && inside != p.Value:
			idle = append(idle, fmt.Sprintf("the port %q is not mapped to %d: the container has the network of the machine", p.Label, inside))
		case !joinsGroup && (mode.IsNone() || mode.IsContainer()) && slices.Contains(cfg.Network.TaskPorts, p.Label):
			idle = append(idle, fmt.Sprintf("the port %q of the task's network block is not published: the container has no ports of its own", p.Label))
		}
	}
	return idle
}

// targetPort returns the port of the container for a port of the group, and whether the container uses that.
func (o *options) targetPort(p fleet.AssignedPort, cfg drivers.TaskConfig) (inside int, used bool) {
	if inside, mapped := o.portMap[p.Label]; mapped {
		return inside, true
	}
	return p.Inside(), slices.Contains(o.ports, p.Label) || slices.Contains(cfg.Network.TaskPorts, p.Label)
}
