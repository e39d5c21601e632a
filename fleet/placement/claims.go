// Package placement says whether a node meets a condition, and what an allocation can be given
// of it: ports, cores and devices. The scheduler and the planner call it; package validate
// compiles constraints with it.
//
// It is pure: it starts no goroutine, reads no clock and does no I/O.
package placement

import (
	"fmt"
	"slices"

	"skerry/fleet"
)

// Claims records the ports, cores, devices and volumes of one node that are taken. It belongs to one
// goroutine.
type Claims struct {
	node    *fleet.Node
	ports   map[string]*PortSet // by address: nobody else may have them
	shared  map[string]*PortSet // by address: only those that share
	cores   map[int]bool
	devices map[string]bool
	volumes map[string]bool
}

// NewClaims returns the claims on a node without allocations: its reserved ports.
func NewClaims(n *fleet.Node) *Claims {
	c := &Claims{node: n, ports: map[string]*PortSet{}, shared: map[string]*PortSet{}, cores: map[int]bool{}, devices: map[string]bool{}, volumes: map[string]bool{}}
	reserve := func(ip, spec string) {
		if set, err := ParsePorts(spec); err == nil { // a node with a bad one is not registered
			taken := c.takenPortsOf(ip)
			for i := range taken {
				taken[i] |= set[i]
			}
		}
	}
	for _, h := range append(n.HostAddresses(fleet.DefaultHostNetwork), n.HostNetworks...) {
		reserve(h.IP, joinPorts(n.ReservedPorts, h.ReservedPorts))
	}
	return c
}

func joinPorts(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + "," + b
}

// takenPortsOf returns the taken ports of an address.
func (c *Claims) takenPortsOf(ip string) *PortSet { return portSetOf(c.ports, ip) }

func portSetOf(sets map[string]*PortSet, ip string) *PortSet {
	if sets[ip] == nil {
		sets[ip] = &PortSet{}
	}
	return sets[ip]
}

// isPortTaken reports whether a port of an address is taken. A port of an address that the node
// no longer has counts as taken on all addresses.
func (c *Claims) isPortTaken(ip string, port int, share bool) bool {
	if c.takenPortsOf(ip).Has(port) || !share && portSetOf(c.shared, ip).Has(port) {
		return true
	}
	for other, set := range c.ports {
		if set.Has(port) && !c.node.HasAddress(other) {
			return true
		}
	}
	return false
}

// Hold takes the resources of an allocation, and names one that was taken already, "" for none.
func (c *Claims) Hold(a *fleet.AssignedResources) string {
	if a == nil {
		return ""
	}
	clash := ""
	for _, p := range a.Ports {
		if c.isPortTaken(p.HostIP, p.Value, p.Shared) {
			clash = fmt.Sprintf("port %d (%s) is taken", p.Value, p.Label)
		}
		if p.Shared {
			portSetOf(c.shared, p.HostIP).Add(p.Value)
		} else {
			c.takenPortsOf(p.HostIP).Add(p.Value)
		}
	}
	for _, id := range a.CoreIDs() {
		if c.cores[id] {
			clash = fmt.Sprintf("core %d is taken", id)
		}
		c.cores[id] = true
	}
	for _, id := range a.DeviceIDs() {
		if c.devices[id] {
			clash = fmt.Sprintf("device %s is taken", id)
		}
		c.devices[id] = true
	}
	for _, name := range a.Volumes {
		if c.volumes[name] {
			clash = fmt.Sprintf("host volume %s has a writer", name)
		}
		c.volumes[name] = true
	}
	return clash
}

// Offer finds the resources that a group needs, without taking them, or names the missing one.
// liked is how well the devices meet the affinities, from -1 to 1. The search for a dynamic
// port begins at seed, so that racing workers try different ones.
func (c *Claims) Offer(g *fleet.TaskGroup, seed uint64) (a *fleet.AssignedResources, liked float64, why string) {
	a = &fleet.AssignedResources{}
	if why := c.assignPorts(g, seed, a); why != "" {
		return nil, 0, why
	}
	for _, name := range g.SoleVolumes() {
		if c.volumes[name] {
			return nil, 0, "host volume has a writer"
		}
		a.Volumes = append(a.Volumes, name)
	}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		given := fleet.AssignedTaskResources{}
		var why string
		if given.Cores, why = c.assignCores(t.Resources.Cores, a); why != "" {
			return nil, 0, why
		}
		// What this task takes is taken for the next one.
		setTask(a, t.Name, given)
		for k := range t.Resources.Devices {
			d, score, why := c.assignDevice(&t.Resources.Devices[k], a)
			if why != "" {
				return nil, 0, why
			}
			liked += score
			given.Devices = append(given.Devices, d)
			setTask(a, t.Name, given)
		}
	}
	return a, liked, ""
}

func setTask(a *fleet.AssignedResources, name string, t fleet.AssignedTaskResources) {
	if len(t.Cores) == 0 && len(t.Devices) == 0 {
		return
	}
	if a.Tasks == nil {
		a.Tasks = map[string]fleet.AssignedTaskResources{}
	}
	a.Tasks[name] = t
}

// assignPorts assigns fixed ports first, so that no dynamic port takes their number.
func (c *Claims) assignPorts(g *fleet.TaskGroup, seed uint64, a *fleet.AssignedResources) string {
	for _, p := range g.Ports() {
		if p.Value <= 0 {
			continue
		}
		ip, ok := c.addressFor(p, a, p.Value)
		if !ok {
			return fmt.Sprintf("network: reserved port collision %s=%d", p.Label, p.Value)
		}
		a.Ports = append(a.Ports, assignedPort(p, p.Value, ip))
	}
	from, to := c.node.DynamicPorts()
	for i, p := range g.Ports() {
		if p.Value > 0 {
			continue
		}
		if len(c.node.HostAddresses(p.HostNetwork)) == 0 {
			return "network: no host network " + p.HostNetwork
		}
		found := false
		begin := int((seed + uint64(i)*7919) % uint64(to-from+1))
		for k := 0; k <= to-from && !found; k++ {
			port := from + (begin+k)%(to-from+1)
			var ip string
			if ip, found = c.addressFor(p, a, port); found {
				a.Ports = append(a.Ports, assignedPort(p, port, ip))
			}
		}
		if !found {
			return "network: dynamic port selection failed"
		}
	}
	return ""
}

// addressFor finds an address whose port is free.
func (c *Claims) addressFor(p fleet.Port, a *fleet.AssignedResources, port int) (string, bool) {
	for _, h := range c.node.HostAddresses(p.HostNetwork) {
		own := slices.ContainsFunc(a.Ports, func(q fleet.AssignedPort) bool { return q.HostIP == h.IP && q.Value == port })
		if !own && !c.isPortTaken(h.IP, port, p.IgnoreCollision) {
			return h.IP, true
		}
	}
	return "", false
}

func assignedPort(p fleet.Port, value int, ip string) fleet.AssignedPort {
	to := p.To
	if to < 0 {
		to = value
	}
	return fleet.AssignedPort{Label: p.Label, Value: value, To: to, HostIP: ip, Shared: p.IgnoreCollision}
}

func (c *Claims) assignCores(n int, a *fleet.AssignedResources) ([]int, string) {
	if n == 0 {
		return nil, ""
	}
	own := a.CoreIDs()
	var ids []int
	for id := 0; id < c.node.CoreCount() && len(ids) < n; id++ {
		if !c.cores[id] && !slices.Contains(own, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) < n {
		return nil, "cores"
	}
	return ids, ""
}
