package chaos

import (
	"context"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/schedule"
)

// trouble is one fault on one member of a real fleet, or on all of them.
type trouble interface {
	// start breaks something, stop mends it. Where start fails stop is called all the
	// same.
	start(ctx context.Context) error
	stop(ctx context.Context) error
	// evidence is how often it really did something, and what. It may come late.
	evidence() (hits uint64, what string)
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
	edge  func(s *storm, f schedule.Fault, e *cluster.Edge) trouble
	hub   func(s *storm, f schedule.Fault, h *cluster.Hub) trouble
	whole func(s *storm, f schedule.Fault) trouble
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

// troublesOf makes what a fault does to each of its targets. The leader is whoever
// leads when the fault begins.
func (s *storm) troublesOf(f schedule.Fault) []trouble {
	k, ok := realKindOf(f.Kind)
	if !ok {
		return nil
	}
	if k.whole != nil {
		return []trouble{k.whole(s, f)}
	}
	var ts []trouble
	topology := s.topology()
	if k.edge != nil {
		for _, name := range topology.EdgesOf(f) {
			ts = append(ts, k.edge(s, f, s.edge(name)))
		}
	}
	if k.hub == nil {
		return ts
	}
	for _, name := range topology.HubsOf(f) {
		if name == schedule.TargetLeader {
			ts = append(ts, &onLeader{s: s, make: func(h *cluster.Hub) trouble { return k.hub(s, f, h) }})
			continue
		}
		ts = append(ts, k.hub(s, f, s.hub(name)))
	}
	return ts
}

// onLeader is trouble of the hub that leads when it begins. Where none does, that is
// trouble enough, and this one does nothing.
type onLeader struct {
	s    *storm
	make func(*cluster.Hub) trouble
	it   trouble
}

func (t *onLeader) start(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	leader, err := t.s.leader(soon)
	if err != nil {
		return ctx.Err()
	}
	t.it = t.make(leader)
	return t.it.start(ctx)
}

func (t *onLeader) stop(ctx context.Context) error {
	if t.it == nil {
		return nil
	}
	return t.it.stop(ctx)
}

func (t *onLeader) evidence() (uint64, string) {
	if t.it == nil {
		return 0, "nobody led"
	}
	return t.it.evidence()
}
