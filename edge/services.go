package edge

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"

	"skerry/edge/checks"
	"skerry/edge/local"
	"skerry/edge/neighbours"
	"skerry/fleet"
	"skerry/fleet/taskenv"
	"skerry/internal/sorting"
	"skerry/syncproto"
)

// openNeighbours opens the keeper of the services of neighbours.
func (e *Edge) openNeighbours() (err error) {
	cfg := neighbours.Config{Journal: e.journal, Dial: e.cfg.DialCheck, Now: e.cfg.Now, Log: e.log.With("component", "neighbours")}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	if e.neighbours, err = neighbours.Open(cfg); err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}

// acceptServices keeps the services of neighbours that a hub delivers. If the hub only asks, it answers with what the edge
// holds.
func (e *Edge) acceptServices(ctx context.Context, req syncproto.Request) (io.ReadCloser, error) {
	held, err := e.neighbours.Accept(ctx, req)
	if err != nil || held == nil {
		return emptyOutput(), err
	}
	text, err := syncproto.EncodeServices(held)
	return io.NopCloser(bytes.NewReader(text)), err
}

// Services returns the known registrations of a service in a namespace, of this edge and of its neighbours, sorted by id,
// without those whose checks fail and those that do not answer. It needs no hub. An empty name means every service, an empty namespace every namespace.
func (e *Edge) Services(ctx context.Context, namespace, name string) ([]fleet.ServiceRegistration, error) {
	all, err := e.localServices(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	var live []fleet.ServiceRegistration
	for _, s := range all {
		if s.Failing == "" && s.Critical == "" {
			live = append(live, s.ServiceRegistration)
		}
	}
	return live, nil
}

// DNSAddr returns the address of the DNS listener, or "".
func (e *Edge) DNSAddr() string {
	if e.names == nil {
		return ""
	}
	return e.names.Addr()
}

// localServices returns the known registrations of a service, also those whose checks fail or that do not answer.
func (e *Edge) localServices(ctx context.Context, namespace, name string) ([]local.Service, error) {
	offered, err := e.offeredServices(ctx, fleet.ProviderNomad)
	if err != nil {
		return nil, err
	}
	found := []local.Service{}
	for a, offers := range offered {
		if namespace != "" && a.Namespace != namespace {
			continue
		}
		failing := e.failingServices(a.ID)
		for _, o := range offers {
			if name == "" || o.ServiceName == name {
				found = append(found, local.Service{ServiceRegistration: o.ServiceRegistration, Failing: failing[o.ServiceName]})
			}
		}
	}
	age := e.neighbours.Age()
	for _, n := range e.neighbours.Services(namespace, name) {
		s := local.Service{ServiceRegistration: n.ServiceRegistration, Neighbour: cmp.Or(n.NodeName, fleet.Short(n.NodeID)), Critical: n.Critical, Untried: n.Untried, CopyAge: age}
		if n.Critical != "" {
			s.Since = &n.Since
		}
		found = append(found, s)
	}
	sorting.Slice(found, func(x, y local.Service) int {
		return cmp.Or(cmp.Compare(x.ServiceName, y.ServiceName), cmp.Compare(x.ID, y.ID))
	})
	return found, nil
}

// offeredServices returns the services of a provider that the allocations of this edge offer now, by allocation.
func (e *Edge) offeredServices(ctx context.Context, provider string) (map[*fleet.Alloc][]taskenv.Offer, error) {
	all, err := e.allocs.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the services of this edge: %w", err)
	}
	node := e.describer.Node()
	found := map[*fleet.Alloc][]taskenv.Offer{}
	for _, s := range all {
		a := s.Desired.Alloc
		a.NodeID, a.ClientStatus, a.TaskStates, a.NetworkStatus = e.node, s.State.ClientStatus, s.State.TaskStates, s.State.Network
		if s.Desired.Stop {
			a.DesiredStatus = fleet.DesiredStop
		}
		if a.Job == nil || s.State.BootID != e.boot {
			continue // the tasks of an earlier boot have not been started again yet
		}
		if offers := taskenv.Offers(&a, &node, a.Job.Region, provider); len(offers) > 0 {
			found[&a] = offers
		}
	}
	return found, nil
}

// failingServices returns the name of a failing check by service, for the services of an allocation.
func (e *Edge) failingServices(id fleet.AllocID) map[string]string {
	failing := map[string]string{}
	for _, r := range e.checks.Results(id) {
		if r.Status == checks.Failure && (failing[r.Service] == "" || r.Check < failing[r.Service]) {
			failing[r.Service] = r.Check
		}
	}
	return failing
}

// Services returns the services that this edge knows of, for the local API.
func (a agent) Services(ctx context.Context, namespace, name string) ([]local.Service, error) {
	return a.e.localServices(ctx, namespace, name)
}

// Checks returns the newest results of an allocation's checks, or of all for "", by allocation, service and name.
func (a agent) Checks(ctx context.Context, alloc fleet.AllocID) ([]local.Check, error) {
	ids := []fleet.AllocID{}
	if alloc != "" {
		full, err := a.resolveAllocID(ctx, alloc)
		if err != nil {
			return nil, err
		}
		ids = append(ids, full)
	} else {
		all, err := a.e.allocs.Status(ctx)
		if err != nil {
			return nil, err
		}
		for id := range all {
			ids = append(ids, id)
		}
	}
	found := []local.Check{}
	for _, id := range ids {
		for _, r := range a.e.checks.Results(id) {
			found = append(found, local.Check{Alloc: id, CheckResult: r})
		}
	}
	sorting.Slice(found, func(x, y local.Check) int {
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Alloc, y.Alloc), cmp.Compare(x.Service, y.Service), cmp.Compare(x.Check, y.Check))
	})
	return found, nil
}

// missingDevices passes the runners' reports about devices to the checks. It is a DeviceReporter.
type missingDevices struct{ e *Edge }

// ReportDevices records the missing devices of a task; "" means that none is missing.
func (m missingDevices) ReportDevices(a fleet.Alloc, task, missing string) {
	m.e.checks.ReportDevices(a, task, missing)
}

// ForgetDevices drops the record of a task's devices.
func (m missingDevices) ForgetDevices(id fleet.AllocID, task string) {
	m.e.checks.ForgetDevices(id, task)
}
