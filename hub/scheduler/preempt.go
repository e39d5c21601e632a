package scheduler

import (
	"cmp"
	"math"
	"slices"

	"skerry/fleet"
	"skerry/reconcile"
)

const (
	// preemptDistance is by how much the priority of what is evicted must be lower.
	preemptDistance = 10
	// preemptChoices is among how many nodes the cheapest evictions are looked for.
	preemptChoices = 64
)

// victim is an allocation that may be evicted.
type victim struct {
	alloc    *fleet.Alloc
	priority int
	burdened bool    // others of its job are evicted already
	distance float64 // between what it takes and what is asked for
}

// eviction is what one node would have to give up.
type eviction struct {
	c       *candidate
	victims []victim
}

// dearer orders evictions: by the highest priority of what goes, by the sum of the
// priorities, by how many go.
func (e eviction) compare(o eviction) int {
	cost := func(e eviction) (highest, sum int) {
		for _, v := range e.victims {
			highest, sum = max(highest, v.priority), sum+v.priority
		}
		return highest, sum
	}
	eh, es := cost(e)
	oh, os := cost(o)
	return cmp.Or(cmp.Compare(eh, oh), cmp.Compare(es, os), cmp.Compare(len(e.victims), len(o.victims)), cmp.Compare(e.c.order, o.c.order))
}

// preempt finds allocations of a lower priority that have to go so that a placement
// finds room, and counts their room as the placement's. Their room is free when
// their edge has said that they ended: until then the placement waits, and so it
// does where what is stopping already will do (then there are none). It reports
// whether the placement has that to wait for.
func (r *ranking) preempt(p reconcile.Placement) (victims []*fleet.Alloc, room bool) {
	if r.hopeless {
		return nil, false
	}
	var best *eviction
	choices := 0
	for _, c := range r.drawn {
		if p.Node != "" && c.node.ID != p.Node || !c.full || r.broken(c.node) != "" {
			continue
		}
		e, ok := r.evictions(c)
		if !ok {
			continue
		}
		if best == nil || e.compare(*best) < 0 {
			best = &e
		}
		if choices++; choices == preemptChoices || len(e.victims) == 0 {
			break
		}
	}
	if best == nil {
		r.hopeless = p.Node == ""
		return nil, false
	}
	n := best.c.node
	after := r.tenants.after[n.ID].Add(r.askOn(n))
	for _, v := range best.victims {
		after = after.Sub(v.alloc.AllocatedResources)
		r.tenants.evict(v.alloc)
		victims = append(victims, v.alloc)
	}
	r.tenants.after[n.ID] = after
	r.tenants.await(n.ID)
	r.occupy(n, 1)
	return victims, true
}

// evict notes that the plan evicts an allocation.
func (t *tenancy) evict(a *fleet.Alloc) {
	if t.evicted == nil {
		t.evicted, t.burdened = map[fleet.AllocID]bool{}, map[jobName]bool{}
	}
	t.evicted[a.ID], t.burdened[jobName{a.Namespace, a.JobID}] = true, true
}

type jobName struct {
	namespace string
	id        fleet.JobID
}

// evictions says what would have to go from a node; false where nothing helps. None
// where the room of what is stopping already will do.
func (r *ranking) evictions(c *candidate) (eviction, bool) {
	gone := map[fleet.AllocID]bool{} // or going
	coming := fleet.Resources{}
	var victims []victim
	ask := r.askOn(c.node)
	for a := range r.cluster.AllocsByNode(c.node.ID) {
		switch {
		case !a.OccupiesNode():
		case r.tenants.evicted[a.ID]:
			gone[a.ID] = true // its room is counted already
		case a.ServerTerminal() && a.ClientStatus != fleet.ClientUnknown:
			gone[a.ID] = true
			coming = coming.Add(a.AllocatedResources)
		case r.evictable(a):
			victims = append(victims, victim{
				alloc: a, priority: a.Job.Priority, distance: distance(ask, a.AllocatedResources),
				burdened: r.tenants.burdened[jobName{a.Namespace, a.JobID}],
			})
		}
	}
	fits := func(chosen []victim) bool {
		taken := c.used.Add(r.tenants.planned[c.node.ID]).Add(r.tenants.after[c.node.ID]).Add(ask).Sub(coming)
		without := gone
		if r.needs && len(chosen) > 0 {
			without = map[fleet.AllocID]bool{}
			for id := range gone {
				without[id] = true
			}
		}
		for _, v := range chosen {
			taken = taken.Sub(v.alloc.AllocatedResources)
			if r.needs {
				without[v.alloc.ID] = true
			}
		}
		return taken.Exceeds(c.node.Free()) == "" && r.offered(c, without)
	}
	chosen, ok := chooseVictims(victims, fits)
	return eviction{c, chosen}, ok
}

// offered reports whether a node could give the group's ports, cores and devices if
// some allocations were gone.
func (r *ranking) offered(c *candidate, gone map[fleet.AllocID]bool) bool {
	if !r.needs {
		return true
	}
	claims := claimsWithout(r.cluster, c.node, gone)
	for _, a := range r.tenants.allotted[c.node.ID] {
		claims.Hold(a)
	}
	_, _, why := claims.Offer(r.g, r.portSeed(c))
	return why == ""
}

// evictable: it is of another job, of a priority that is lower by enough.
func (r *ranking) evictable(a *fleet.Alloc) bool {
	job := r.where.job
	return a.Job != nil && !a.Terminal() && a.ClientStatus != fleet.ClientUnknown &&
		(a.JobID != job.ID || a.Namespace != job.Namespace) && a.Job.Priority <= job.Priority-preemptDistance
}

// chooseVictims takes the least important first until it fits, and then spares
// those that need not go; none where it fits without. False where it does not even
// fit without all of them.
func chooseVictims(all []victim, fits func([]victim) bool) ([]victim, bool) {
	slices.SortFunc(all, func(a, b victim) int {
		if a.burdened != b.burdened {
			if a.burdened {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.distance, b.distance), cmp.Compare(a.alloc.ID, b.alloc.ID))
	})
	n := 0
	for !fits(all[:n]) {
		if n++; n > len(all) {
			return nil, false
		}
	}
	chosen := slices.Clone(all[:n])
	for i := len(chosen) - 1; i >= 0; i-- {
		if spared := slices.Delete(slices.Clone(chosen), i, i+1); fits(spared) {
			chosen = spared
		}
	}
	return chosen, true
}

// distance says how unlike two amounts are: 0 for the same.
func distance(ask, takes fleet.Resources) float64 {
	sum := 0.0
	for _, d := range [][2]int{{ask.CPU, takes.CPU}, {ask.MemoryMB, takes.MemoryMB}, {ask.DiskMB, takes.DiskMB}} {
		if d[0] > 0 {
			part := float64(d[0]-d[1]) / float64(d[0])
			sum += part * part
		}
	}
	return math.Sqrt(sum)
}
