package fleet

import (
	"fmt"
	"slices"
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

// String returns the registration as one line.
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

// UsesConsul reports whether the group or a task of it has a service that is registered with a Consul agent.
func (g *TaskGroup) UsesConsul() bool {
	consul := func(s Service) bool { return s.Provider == ProviderConsul }
	return slices.ContainsFunc(g.Services, consul) ||
		slices.ContainsFunc(g.Tasks, func(t Task) bool { return slices.ContainsFunc(t.Services, consul) })
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
