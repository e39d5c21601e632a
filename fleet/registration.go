package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Statuses of a registration.
const (
	ServiceReachable   = "reachable"
	ServiceUnreachable = "unreachable" // its node is away: it runs as far as anybody knows
)

// ServiceRegistration is one allocation's service in the catalogue: under which name
// and where it is to be found. It follows from the allocation, its job and its node,
// and is kept nowhere.
type ServiceRegistration struct {
	ID          string
	ServiceName string
	Namespace   string
	NodeID      NodeID
	Datacenter  string
	JobID       JobID
	AllocID     AllocID
	Tags        []string
	Meta        map[string]string `json:",omitempty"`
	Address     string
	Port        int
	Status      string // ServiceReachable or ServiceUnreachable
	CreateIndex Index
	ModifyIndex Index
}

func (r ServiceRegistration) String() string {
	return fmt.Sprintf("%s %s %d %s", r.ServiceName, r.Address, r.Port, r.Status)
}

// Offers reports whether an allocation has services in the catalogue, for all that is
// known of it itself: also while its edge holds its stop back until a window opens, for
// until then nothing takes its place.
func (a *Alloc) Offers() bool {
	runs := a.ClientStatus == ClientRunning || a.ClientStatus == ClientUnknown && a.ReportedStatus == ClientRunning
	if a.DesiredStatus != DesiredRun && !a.AwaitsWindow() || !runs {
		return false
	}
	g := a.Group()
	return g != nil && g.HasServices()
}

// HasServices reports whether the group or a task of it offers anything.
func (g *TaskGroup) HasServices() bool {
	return len(g.Services) > 0 || slices.ContainsFunc(g.Tasks, func(t Task) bool { return len(t.Services) > 0 })
}

// HasChecks reports whether the group or a task of it has services that are checked on
// the edge.
func (g *TaskGroup) HasChecks() bool {
	checked := func(s Service) bool { return s.Provider == ProviderNomad && len(s.Checks) > 0 }
	return slices.ContainsFunc(g.Services, checked) ||
		slices.ContainsFunc(g.Tasks, func(t Task) bool { return slices.ContainsFunc(t.Services, checked) })
}

// serviceStatus is that of what an allocation offers on a node.
func (a *Alloc) serviceStatus(n *Node) string {
	if a.ClientStatus != ClientRunning || n.Status == NodeDisconnected || n.Status == NodeDown {
		return ServiceUnreachable
	}
	return ServiceReachable
}

// Ending reports whether one of the allocation's tasks is being ended, or was: with it the
// allocation ends, as soon as its shutdown delays and kill timeouts are over.
func (a *Alloc) Ending() bool {
	for _, s := range a.TaskStates {
		if s.Ending() {
			return true
		}
	}
	return false
}

// Ending reports whether the task is being ended, or was, since it started last.
func (s TaskState) Ending() bool {
	for _, e := range slices.Backward(s.Events) {
		switch e.Type {
		case TaskWaitsToStop, TaskKilling:
			return true
		case TaskStarted:
			return false
		}
	}
	return false
}

// Offers reports whether the task's services are in the catalogue: while it runs, and is
// not to end.
func (s TaskState) Offers() bool { return s.State == TaskRunning && !s.Ending() }

// Registrations lists what an allocation offers: nothing unless it shall run and does.
// A task's services are there while that task runs, a group's while none of the tasks is
// being ended. What names a port that the
// allocation does not have, or whose name is none once ${…} is filled in, is left out.
func (a *Alloc) Registrations(n *Node, region string) []ServiceRegistration {
	if n == nil || !a.Offers() {
		return nil
	}
	var found []ServiceRegistration
	g := a.Group()
	for i := range g.Services {
		if a.Ending() {
			break
		}
		found = a.appendRegistration(found, &g.Services[i], TaskPlace{Alloc: a, Node: n, Region: region})
	}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if !a.TaskStates[t.Name].Offers() {
			continue
		}
		for k := range t.Services {
			found = a.appendRegistration(found, &t.Services[k], TaskPlace{Alloc: a, Node: n, Region: region, Task: t.Name})
		}
	}
	return found
}

func (a *Alloc) appendRegistration(found []ServiceRegistration, s *Service, where TaskPlace) []ServiceRegistration {
	if s.Provider != ProviderNomad {
		return found
	}
	said := s.Interpolated(NewTaskEnv(where))
	address, port, ok := a.Endpoint(where.Node, said.PortLabel)
	if !ok || !ValidServiceName(said.Name) {
		return found
	}
	r := ServiceRegistration{
		ServiceName: said.Name, Namespace: a.Namespace, NodeID: a.NodeID, Datacenter: where.Node.Datacenter,
		JobID: a.JobID, AllocID: a.ID, Tags: said.Tags, Meta: said.Meta,
		Address: cmp.Or(said.Address, address), Port: port, Status: a.serviceStatus(where.Node),
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
	return append(found, r)
}

// Interpolated returns what the service says with every ${…} filled in.
func (s *Service) Interpolated(env TaskEnv) Service {
	c := *s
	c.Name, c.PortLabel, c.Address = env.Replace(s.Name), env.Replace(s.PortLabel), env.Replace(s.Address)
	c.Tags, c.CanaryTags = replaceEach(env, s.Tags), replaceEach(env, s.CanaryTags)
	c.Meta, c.CanaryMeta = replaceValues(env, s.Meta), replaceValues(env, s.CanaryMeta)
	return c
}

func replaceEach(env TaskEnv, list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = env.Replace(s)
	}
	return out
}

func replaceValues(env TaskEnv, m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = env.Replace(v)
	}
	return out
}

// Endpoint is where a port of an allocation is to be found: one that it was given, by
// its label, a number, or none for "". The address is the one that the node has now,
// but for ports of its other networks.
func (a *Alloc) Endpoint(n *Node, label string) (address string, port int, ok bool) {
	now := n.HostAddresses(DefaultHostNetwork)[0].IP
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
	if number, err := strconv.Atoi(label); err == nil && number > 0 && number <= MaxPort {
		return now, number, true
	}
	return "", 0, false
}
