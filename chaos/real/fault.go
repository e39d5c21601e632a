package real

import (
	"context"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/schedule"
)

// memberFault is one fault on one member of a real fleet, or on all of them.
type memberFault interface {
	// injectFault breaks something, stop mends it. Where start fails stop is called all the
	// same.
	injectFault(ctx context.Context) error
	healFault(ctx context.Context) error
	// faultEvidence is how often it really did something, and what. It may come late.
	faultEvidence() (hits uint64, what string)
}

// needs is what a kind needs of the ground.
type needs struct {
	disks  bool // disks of their own
	clocks bool // clocks that can be moved
	netns  bool // machines with a routing table and an address of their own
}

// realKind is a kind of fault as it is done on real processes.
type realKind struct {
	kind    schedule.Kind
	needs   needs
	effects []check.Effect
	// edge and hub make the trouble of one target; whole that of a kind that names
	// none.
	edge  func(s *campaignRun, f schedule.Fault, e *cluster.Edge) memberFault
	hub   func(s *campaignRun, f schedule.Fault, h *cluster.Hub) memberFault
	whole func(s *campaignRun, f schedule.Fault) memberFault
}

// realKinds are all kinds that this package can do.
func realKinds() []realKind {
	return slices.Concat(linkKinds, hubKinds, edgeKinds, diskKinds, clockKinds, taskKinds)
}

func realKindOf(kind schedule.Kind) (realKind, bool) {
	kinds := realKinds()
	i := slices.IndexFunc(kinds, func(k realKind) bool { return k.kind == kind })
	if i < 0 {
		return realKind{}, false
	}
	return kinds[i], true
}

// newMemberFaults makes what a fault does to each of its targets. The leader is whoever
// leads when the fault begins.
func (s *campaignRun) newMemberFaults(f schedule.Fault) []memberFault {
	k, ok := realKindOf(f.Kind)
	if !ok {
		return nil
	}
	if k.whole != nil {
		return []memberFault{k.whole(s, f)}
	}
	var ts []memberFault
	topology := s.fleetTopology()
	if k.edge != nil {
		for _, name := range topology.EdgesOf(f) {
			ts = append(ts, k.edge(s, f, s.edgeByName(name)))
		}
	}
	if k.hub == nil {
		return ts
	}
	for _, name := range topology.HubsOf(f) {
		if name == schedule.TargetLeader {
			ts = append(ts, &leaderFault{s: s, make: func(h *cluster.Hub) memberFault { return k.hub(s, f, h) }})
			continue
		}
		ts = append(ts, k.hub(s, f, s.hubByName(name)))
	}
	return ts
}

// leaderFault is trouble of the hub that leads when it begins. Where none does, that is
// trouble enough, and this one does nothing.
type leaderFault struct {
	s    *campaignRun
	make func(*cluster.Hub) memberFault
	it   memberFault
}

func (t *leaderFault) injectFault(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	leader, err := t.s.findRunningLeader(soon)
	if err != nil {
		return ctx.Err()
	}
	t.it = t.make(leader)
	return t.it.injectFault(ctx)
}

func (t *leaderFault) healFault(ctx context.Context) error {
	if t.it == nil {
		return nil
	}
	return t.it.healFault(ctx)
}

func (t *leaderFault) faultEvidence() (uint64, string) {
	if t.it == nil {
		return 0, "nobody led"
	}
	return t.it.faultEvidence()
}
