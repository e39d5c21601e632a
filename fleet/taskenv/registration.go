package taskenv

import (
	"cmp"
	"strconv"
	"strings"

	"skerry/fleet"
)

// serviceStatus returns the status of an allocation's services on a node.
func serviceStatus(a *fleet.Alloc, n *fleet.Node) string {
	if a.ClientStatus != fleet.ClientRunning || n.Status == fleet.NodeDisconnected || n.Status == fleet.NodeDown {
		return fleet.ServiceUnreachable
	}
	return fleet.ServiceReachable
}

// Offer is a service of an allocation, with ${…} replaced, and how it is found.
type Offer struct {
	fleet.ServiceRegistration
	Service fleet.Service
	Task    string // "": the service is the group's
}

// Registrations lists the services of an allocation that are in the hubs' catalogue, of those that Offers returns.
func Registrations(a *fleet.Alloc, n *fleet.Node, region string) []fleet.ServiceRegistration {
	var found []fleet.ServiceRegistration
	for _, o := range Offers(a, n, region, fleet.ProviderNomad) {
		found = append(found, o.ServiceRegistration)
	}
	return found
}

// Offers lists the services of a provider of an allocation that runs and shall run: a task's while the
// task runs, a group's while no task is ending. It leaves out services with an unknown port,
// and those whose name is invalid once ${…} is replaced.
func Offers(a *fleet.Alloc, n *fleet.Node, region, provider string) []Offer {
	if n == nil || !a.Offers() {
		return nil
	}
	var found []Offer
	add := func(s *fleet.Service, task string) {
		if s.Provider != provider {
			return
		}
		if o, ok := newOffer(a, s, Place{Alloc: a, Node: n, Region: region, Task: task}); ok {
			found = append(found, o)
		}
	}
	g := a.Group()
	for i := range g.Services {
		if a.Ending() {
			break
		}
		add(&g.Services[i], "")
	}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if !a.TaskStates[t.Name].Offers() {
			continue
		}
		for k := range t.Services {
			add(&t.Services[k], t.Name)
		}
	}
	return found
}

// newOffer returns the registration of one service; false: it is invalid.
func newOffer(a *fleet.Alloc, s *fleet.Service, where Place) (Offer, bool) {
	said := Service(s, New(where))
	address, port, ok := Endpoint(where, said.PortLabel, said.AddressMode)
	if !ok || !fleet.ValidServiceName(said.Name) {
		return Offer{}, false
	}
	r := fleet.ServiceRegistration{
		ServiceName: said.Name, Namespace: a.Namespace, NodeID: a.NodeID, Datacenter: where.Node.Datacenter,
		JobID: a.JobID, AllocID: a.ID, Tags: said.Tags, Meta: said.Meta,
		Address: cmp.Or(said.Address, address), Port: port, Status: serviceStatus(a, where.Node),
		CreateIndex: a.CreateIndex, ModifyIndex: a.ModifyIndex,
	}
	if a.DeploymentStatus != nil && a.DeploymentStatus.Canary {
		if len(said.CanaryTags) > 0 {
			r.Tags = said.CanaryTags
		}
		if len(said.CanaryMeta) > 0 {
			r.Meta = said.CanaryMeta
		}
	}
	owner := cmp.Or(where.Task, "group-"+a.TaskGroup)
	r.ID = "_nomad-task-" + strings.Join([]string{string(a.ID), owner, said.Name, said.PortLabel}, "-")
	return Offer{r, said, where.Task}, true
}

// Endpoint returns the address and port of an allocation: of an assigned port by its label, of a number, or of no port
// for "". The address is the node's present one, unless the port is of another network or the address mode is alloc
// or driver: then it is that of the allocation, or of the task, in a network of its own, with the ports there.
func Endpoint(where Place, label, mode string) (address string, port int, ok bool) {
	a, n := where.Alloc, where.Node
	switch mode {
	case fleet.AddressAlloc:
		if a.NetworkStatus == nil {
			return "", 0, false
		}
		return endpointInside(a, a.NetworkStatus.Address, label)
	case fleet.AddressDriver:
		return endpointInside(a, a.TaskStates[where.Task].Address, label)
	}
	now := n.HostAddresses(fleet.DefaultHostNetwork)[0].IP
	if label == "" {
		return now, 0, true
	}
	if a.Allotment != nil {
		for _, p := range a.Allotment.Ports {
			if p.Label != label {
				continue
			}
			if now == "" || n.HasAddress(p.HostIP) {
				return p.HostIP, p.Value, true
			}
			return now, p.Value, true
		}
	}
	if number, err := strconv.Atoi(label); err == nil && number > 0 && number <= fleet.MaxPort {
		return now, number, true
	}
	return "", 0, false
}

// endpointInside returns an address in another network than the node's, and the port there; false: there is no address
// yet, or no such port.
func endpointInside(a *fleet.Alloc, address, label string) (string, int, bool) {
	if address == "" {
		return "", 0, false
	}
	if label == "" {
		return address, 0, true
	}
	if a.Allotment != nil {
		for _, p := range a.Allotment.Ports {
			if p.Label == label {
				return address, cmp.Or(max(p.To, 0), p.Value), true
			}
		}
	}
	number, err := strconv.Atoi(label)
	return address, number, err == nil && number > 0 && number <= fleet.MaxPort
}
