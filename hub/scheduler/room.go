package scheduler

import (
	"fmt"
	"hash/fnv"
	"strings"

	"skerry/fleet"
	"skerry/fleet/placement"
)

// plannedUsage is where a job's allocations are: those that stay, and those that the
// plan places.
type plannedUsage struct {
	byNode  map[fleet.NodeID]map[string]int  // allocations by group
	planned map[fleet.NodeID]fleet.Resources // taken by the plan, beyond what is used now
	// afterStops is what more will be taken, or less, once what the plan stops to make room
	// has ended and what waits for that is there.
	afterStops   map[fleet.NodeID]fleet.Resources
	awaitedByJob map[fleet.NodeID]bool // where after says so
	placed       map[fleet.NodeID]int  // how many the plan places
	// Of nodes that were asked for more than amounts: what is given out, and what of it
	// by the plan.
	claims         map[fleet.NodeID]*placement.Claims
	assignedByPlan map[fleet.NodeID][]*fleet.AssignedResources
	evicted        map[fleet.AllocID]bool // by the plan
	evictedJobs    map[jobKey]bool        // whose they are
	// awaitedPriority is by whom room of a node is waited for: the highest priority of another
	// job. Nil: not asked for yet.
	awaitedPriority map[fleet.NodeID]int
}

// resourcesOnNode is what the group takes of a node: where tasks ask for whole cores, as much
// cpu as these have.
func (r *ranking) resourcesOnNode(n *fleet.Node) fleet.Resources {
	ask := r.askedResources
	if ask.Cores > 0 {
		ask.CPU += ask.Cores * n.CoreMHz()
	}
	if ask.MemoryMaxMB > 0 && !r.schedulerConfigFor(n).MemoryOversubscriptionEnabled {
		ask.MemoryMaxMB = 0
	}
	return ask
}

// exhaustedDimension says what a candidate has too little of for one more allocation, "" where
// it has enough; taken is what would be in use then, liked how well its devices
// are.
func (r *ranking) exhaustedDimension(c *candidate) (taken fleet.Resources, liked float64, short string) {
	taken = c.used.Add(r.plannedUsage.planned[c.node.ID]).Add(nonNegativeResources(r.plannedUsage.afterStops[c.node.ID])).Add(r.resourcesOnNode(c.node))
	if short = taken.Exceeds(c.node.Free()); short != "" {
		return taken, 0, short
	}
	if limit := c.node.MaxAllocs; limit > 0 && countOccupyingAllocs(r.cluster, c.node.ID)+r.plannedUsage.placed[c.node.ID] >= limit {
		return taken, 0, "max allocations of the node"
	}
	if r.needsAssignment {
		_, liked, short = r.plannedUsage.claimsOn(r.cluster, c.node).Offer(r.g, r.portSeed(c))
	}
	return taken, liked, short
}

// describeShortage says how much of what a node has too little of is asked for, and is there.
func (r *ranking) describeShortage(n *fleet.Node, short string) string {
	asks, has := r.resourcesOnNode(n), n.Free()
	free := has.Sub(r.cluster.Used(n.ID)).Sub(r.plannedUsage.planned[n.ID]).Sub(nonNegativeResources(r.plannedUsage.afterStops[n.ID]))
	switch short {
	case "cpu":
		return fmt.Sprintf("cpu: %d MHz asked for, %d of %d free", asks.CPU, max(0, free.CPU), has.CPU)
	case "memory":
		return fmt.Sprintf("memory: %d MB asked for, %d of %d free", asks.MemoryMB, max(0, free.MemoryMB), has.MemoryMB)
	case "disk":
		return fmt.Sprintf("disk: %d MB asked for, %d of %d free", asks.DiskMB, max(0, free.DiskMB), has.DiskMB)
	}
	return short
}

// longestShown bounds what is shown of a node's attribute, in bytes.
const longestShown = 64

// describeUnmetConstraint is a constraint with what the node has instead.
func describeUnmetConstraint(n *fleet.Node, constraint string) string {
	end := strings.IndexByte(constraint, '}')
	if !strings.HasPrefix(constraint, "${") || end < 0 {
		return constraint
	}
	has, ok := n.Value(constraint[:end+1])
	switch {
	case !ok:
		return constraint + ": it has none"
	case len(has) > longestShown:
		has = strings.ToValidUTF8(has[:longestShown], "") + "…"
	}
	return constraint + ": it has " + has
}

// countOccupyingAllocs counts the allocations that take room on a node.
func countOccupyingAllocs(c cluster, id fleet.NodeID) int {
	n := 0
	for a := range c.AllocsByNode(id) {
		if a.OccupiesNode() {
			n++
		}
	}
	return n
}

// reservedForHigherPriority is what a node has too little of whose room is kept for a job of a higher
// priority.
const reservedForHigherPriority = "room that is being made for a job of higher priority"

// isReservedForOther reports whether a job of a higher priority waits for room on a candidate that
// is being made for it, by an eviction or by stopping what it replaces. Until it has
// been looked at again that room is nobody else's, also where it is free by now: whoever
// took it would be the next to be evicted.
func (r *ranking) isReservedForOther(c *candidate) bool {
	job := r.feasibility.job
	if r.plannedUsage.awaitedPriority == nil {
		r.plannedUsage.awaitedPriority = map[fleet.NodeID]int{}
		for e := range r.cluster.AwaitingEvals() {
			if e.JobID == job.ID && e.Namespace == job.Namespace {
				continue
			}
			for _, id := range e.AwaitedNodes {
				r.plannedUsage.awaitedPriority[id] = max(r.plannedUsage.awaitedPriority[id], e.Priority)
			}
		}
	}
	if r.plannedUsage.awaitedPriority[c.node.ID] <= job.Priority {
		return false
	}
	if !c.countedReserved {
		c.countedReserved = true
		r.recordExhausted(c.node, reservedForHigherPriority)
	}
	return true
}

// reserveAfterStop reports whether a placement would find room on the node of the
// allocation that it replaces once that has ended, and if so takes the room.
func (r *ranking) reserveAfterStop(prev *fleet.Alloc) bool {
	n, ok := r.cluster.Node(prev.NodeID)
	if !ok || !n.Schedulable() || !prev.OccupiesNode() || r.feasibility.whyInfeasible(n) != "" || r.brokenDistinctRule(n) != "" {
		return false
	}
	after := r.plannedUsage.afterStops[n.ID].Sub(prev.AllocatedResources).Add(r.resourcesOnNode(n))
	if !r.fitsWithout(prev, n, r.plannedUsage.planned[n.ID].Add(after)) {
		return false
	}
	r.plannedUsage.afterStops[n.ID] = after
	if !prev.AwaitsWindow() { // which may open in days: until then the room is anybody's
		r.plannedUsage.recordAwaitedNode(n.ID)
	}
	r.adjustGroupCount(n, 1)
	return true
}

// fitsWithout reports whether the group fits on a node that has not got an allocation any
// more, where so much more of its amounts is taken.
func (r *ranking) fitsWithout(prev *fleet.Alloc, n *fleet.Node, more fleet.Resources) bool {
	if r.cluster.Used(n.ID).Add(more).Exceeds(n.Free()) != "" {
		return false
	}
	if !r.needsAssignment {
		return true
	}
	_, _, why := claimsWithout(r.cluster, n, map[fleet.AllocID]bool{prev.ID: true}).Offer(r.g, r.seed)
	return why == ""
}

// canFitInsteadOf reports whether the group has room in the stead of an allocation, on its node,
// as that is now.
func (r *ranking) canFitInsteadOf(prev *fleet.Alloc, n *fleet.Node) bool {
	more := r.resourcesOnNode(n)
	if prev.OccupiesNode() {
		more = more.Sub(prev.AllocatedResources)
	}
	return r.fitsWithout(prev, n, more)
}

// recordAwaitedNode notes that the job waits for room on a node that is being made for it.
func (t *plannedUsage) recordAwaitedNode(id fleet.NodeID) {
	if t.awaitedByJob == nil {
		t.awaitedByJob = map[fleet.NodeID]bool{}
	}
	t.awaitedByJob[id] = true
}

// nonNegativeResources is what is taken of amounts some of which are given back: those of which
// nothing is.
func nonNegativeResources(r fleet.Resources) fleet.Resources {
	return fleet.Resources{
		CPU: max(r.CPU, 0), Cores: max(r.Cores, 0), MemoryMB: max(r.MemoryMB, 0), MemoryMaxMB: max(r.MemoryMaxMB, 0), DiskMB: max(r.DiskMB, 0),
	}
}

// claimsOn returns what is given out of a node, with what the plan gives.
func (t *plannedUsage) claimsOn(c cluster, n *fleet.Node) *placement.Claims {
	if t.claims == nil {
		t.claims = map[fleet.NodeID]*placement.Claims{}
	}
	if t.claims[n.ID] == nil {
		t.claims[n.ID] = claimsWithout(c, n, nil)
	}
	return t.claims[n.ID]
}

// claimsWithout returns what allocations have been given of a node, but for some.
func claimsWithout(c cluster, n *fleet.Node, gone map[fleet.AllocID]bool) *placement.Claims {
	claims := placement.NewClaims(n)
	for a := range c.AllocsByNode(n.ID) {
		if a.OccupiesNode() && !gone[a.ID] {
			claims.Hold(a.Allotment)
		}
	}
	return claims
}

// portSeed is where the search for dynamic ports begins on a node.
func (r *ranking) portSeed(c *candidate) uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.node.ID))
	return h.Sum64() + r.seed
}
