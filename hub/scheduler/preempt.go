package scheduler

import (
	"cmp"
	"math"
	"slices"

	"skerry/fleet"
	"skerry/reconcile"
)

const (
	// preemptDistance is how much lower the priority of a preempted job must be.
	preemptDistance = 10
	// preemptChoices is how many nodes are compared for the cheapest preemption.
	preemptChoices = 64
)

// victim is an allocation that may be preempted.
type victim struct {
	alloc             *fleet.Alloc
	priority          int
	jobAlreadyEvicted bool    // the plan evicts another allocation of its job
	distance          float64 // between its resources and the requested ones
}

// eviction is the set of allocations to preempt on one node.
type eviction struct {
	c       *candidate
	victims []victim
}

// compareCost compares evictions by their highest priority, the sum of priorities, and their number; the
// cheaper one is less.
func (e eviction) compareCost(o eviction) int {
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

// planPreemption finds allocations of lower priority to preempt so that a placement fits on one node, and
// reserves their capacity. The placement waits until their edge reports their end. victims is empty if
// allocations that stop already are enough. fits is false if preemption does not help.
func (r *ranking) planPreemption(p reconcile.Placement) (victims []*fleet.Alloc, fits bool) {
	if r.noEvictionHelps {
		return nil, false
	}
	var best *eviction
	choices := 0
	for _, c := range r.drawn {
		if p.Node != "" && c.node.ID != p.Node || !c.full || r.brokenDistinctRule(c.node) != "" {
			continue
		}
		e, ok := r.findEvictions(c)
		if !ok {
			continue
		}
		if best == nil || e.compareCost(*best) < 0 {
			best = &e
		}
		if choices++; choices == preemptChoices || len(e.victims) == 0 {
			break
		}
	}
	if best == nil {
		r.noEvictionHelps = p.Node == ""
		return nil, false
	}
	n := best.c.node
	after := r.plannedUsage.afterStops[n.ID].Add(r.resourcesOnNode(n))
	for _, v := range best.victims {
		after = after.Sub(v.alloc.AllocatedResources)
		r.plannedUsage.recordEviction(v.alloc)
		victims = append(victims, v.alloc)
	}
	r.plannedUsage.afterStops[n.ID] = after
	r.plannedUsage.recordAwaitedNode(n.ID)
	r.adjustGroupCount(n, 1)
	return victims, true
}

// recordEviction records that the plan evicts an allocation.
func (t *plannedUsage) recordEviction(a *fleet.Alloc) {
	if t.evicted == nil {
		t.evicted, t.evictedJobs = map[fleet.AllocID]bool{}, map[jobKey]bool{}
	}
	t.evicted[a.ID], t.evictedJobs[jobKey{a.Namespace, a.JobID}] = true, true
}

// jobKey identifies a job.
type jobKey struct {
	namespace string
	id        fleet.JobID
}

// findEvictions returns the cheapest allocations to preempt on a candidate. They are none if those that
// stop already are enough. It returns false if preemption does not help.
func (r *ranking) findEvictions(c *candidate) (eviction, bool) {
	gone := map[fleet.AllocID]bool{} // allocations that stop already, or that the plan evicts
	coming := fleet.Resources{}      // resources of allocations that stop already
	var victims []victim
	ask := r.resourcesOnNode(c.node)
	for a := range r.cluster.AllocsByNode(c.node.ID) {
		switch {
		case !a.OccupiesNode():
		case r.plannedUsage.evicted[a.ID]:
			gone[a.ID] = true // its resources are in afterStops
		case a.ServerTerminal() && a.ClientStatus != fleet.ClientUnknown:
			gone[a.ID] = true
			coming = coming.Add(a.AllocatedResources)
		case r.isPreemptible(a):
			victims = append(victims, victim{
				alloc: a, priority: a.Job.Priority, distance: resourceDistance(ask, a.AllocatedResources),
				jobAlreadyEvicted: r.plannedUsage.evictedJobs[jobKey{a.Namespace, a.JobID}],
			})
		}
	}
	fits := func(chosen []victim) bool {
		taken := c.used.Add(r.plannedUsage.planned[c.node.ID]).Add(r.plannedUsage.afterStops[c.node.ID]).Add(ask).Sub(coming)
		without := gone
		if r.needsAssignment && len(chosen) > 0 {
			without = map[fleet.AllocID]bool{}
			for id := range gone {
				without[id] = true
			}
		}
		for _, v := range chosen {
			taken = taken.Sub(v.alloc.AllocatedResources)
			if r.needsAssignment {
				without[v.alloc.ID] = true
			}
		}
		return taken.Exceeds(c.node.Free()) == "" && r.canAssignWithout(c, without)
	}
	chosen, ok := chooseVictims(victims, fits)
	return eviction{c, chosen}, ok
}

// canAssignWithout reports whether a node could assign the group's ports, cores and devices if the
// allocations gone had ended.
func (r *ranking) canAssignWithout(c *candidate, gone map[fleet.AllocID]bool) bool {
	if !r.needsAssignment {
		return true
	}
	claims := claimsWithout(r.cluster, c.node, gone)
	for _, a := range r.plannedUsage.assignedByPlan[c.node.ID] {
		claims.Hold(a)
	}
	_, _, why := claims.Offer(r.g, r.portSeed(c))
	return why == ""
}

// isPreemptible reports whether an allocation belongs to another job whose priority is lower by at least
// preemptDistance.
func (r *ranking) isPreemptible(a *fleet.Alloc) bool {
	job := r.feasibility.job
	return a.Job != nil && !a.Terminal() && a.ClientStatus != fleet.ClientUnknown &&
		(a.JobID != job.ID || a.Namespace != job.Namespace) && a.Job.Priority <= job.Priority-preemptDistance
}

// chooseVictims returns the allocations to preempt so that fits is true, the least important ones; none if
// it is true without any. It returns false if all of them are not enough. all is sorted in place.
func chooseVictims(all []victim, fits func([]victim) bool) ([]victim, bool) {
	slices.SortFunc(all, func(a, b victim) int {
		if a.jobAlreadyEvicted != b.jobAlreadyEvicted {
			if a.jobAlreadyEvicted {
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

// resourceDistance returns how different two amounts of resources are; 0: equal.
func resourceDistance(ask, takes fleet.Resources) float64 {
	sum := 0.0
	for _, d := range [][2]int{{ask.CPU, takes.CPU}, {ask.MemoryMB, takes.MemoryMB}, {ask.DiskMB, takes.DiskMB}} {
		if d[0] > 0 {
			part := float64(d[0]-d[1]) / float64(d[0])
			sum += part * part
		}
	}
	return math.Sqrt(sum)
}
