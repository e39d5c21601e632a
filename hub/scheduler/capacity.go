package scheduler

import (
	"fmt"
	"hash/fnv"
	"strings"

	"skerry/fleet"
	"skerry/fleet/placement"
)

// plannedUsage tracks the job's allocations on nodes, those that stay and those that the plan places, and
// the resources that the plan reserves.
type plannedUsage struct {
	byNode  map[fleet.NodeID]map[string]int  // number of the job's allocations by group
	planned map[fleet.NodeID]fleet.Resources // resources of the plan's placements
	// afterStops is how usage will change when the plan's stops have ended and the placements that wait
	// for them are made.
	afterStops   map[fleet.NodeID]fleet.Resources
	awaitedByJob map[fleet.NodeID]bool // nodes on which the job waits for stops
	placed       map[fleet.NodeID]int  // number of placements, on nodes with MaxAllocs
	// claims are the assigned ports, cores and devices of nodes, including those of the plan.
	// assignedByPlan are those of the plan alone.
	claims         map[fleet.NodeID]*placement.Claims
	assignedByPlan map[fleet.NodeID][]*fleet.AssignedResources
	evicted        map[fleet.AllocID]bool // allocations that the plan evicts
	evictedJobs    map[jobKey]bool        // the jobs of these
	// awaitedPriority is the highest priority of other jobs for which allocations on a node stop.
	// nil: not computed yet.
	awaitedPriority map[fleet.NodeID]int
}

// resourcesOnNode returns the resources of one allocation on a node. Requested whole cores add their MHz
// to CPU. memory_max only counts if the node's pool allows memory oversubscription.
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

// exhaustedDimension returns the resource that a candidate lacks for one more allocation; short is "" if
// it has enough. taken is what would then be in use, liked the score of its devices.
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

// describeShortage describes how much of the resource short is requested and free on a node.
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

// longestShown bounds the shown part of a node's attribute, in bytes.
const longestShown = 64

// describeUnmetConstraint returns a constraint with the value that the node has.
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

// countOccupyingAllocs counts the allocations that occupy a node.
func countOccupyingAllocs(c cluster, id fleet.NodeID) int {
	n := 0
	for a := range c.AllocsByNode(id) {
		if a.OccupiesNode() {
			n++
		}
	}
	return n
}

// reservedForHigherPriority is the exhausted dimension of a node that is reserved for a job of higher
// priority.
const reservedForHigherPriority = "room that is being made for a job of higher priority"

// isReservedForOther reports whether allocations on a candidate stop, or have stopped, to make room for a
// waiting job of higher priority. Until that job is scheduled, no other may take the capacity: it would be
// preempted next.
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

// reserveAfterStop reports whether the group fits on the node of prev once that has ended, and if so
// reserves the resources.
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
	if !prev.AwaitsWindow() { // the window may open in days: until then others may use the resources
		r.plannedUsage.recordAwaitedNode(n.ID)
	}
	r.adjustGroupCount(n, 1)
	return true
}

// fitsWithout reports whether a node has capacity for more resources, and for the group's assignments, if
// the allocation prev were gone.
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

// canFitInsteadOf reports whether the group fits on the node n instead of the allocation prev there.
func (r *ranking) canFitInsteadOf(prev *fleet.Alloc, n *fleet.Node) bool {
	more := r.resourcesOnNode(n)
	if prev.OccupiesNode() {
		more = more.Sub(prev.AllocatedResources)
	}
	return r.fitsWithout(prev, n, more)
}

// recordAwaitedNode records that the job waits for allocations on a node to stop.
func (t *plannedUsage) recordAwaitedNode(id fleet.NodeID) {
	if t.awaitedByJob == nil {
		t.awaitedByJob = map[fleet.NodeID]bool{}
	}
	t.awaitedByJob[id] = true
}

// nonNegativeResources returns r with negative amounts set to 0: resources that will be freed later do not
// count as free now.
func nonNegativeResources(r fleet.Resources) fleet.Resources {
	return fleet.Resources{
		CPU: max(r.CPU, 0), Cores: max(r.Cores, 0), MemoryMB: max(r.MemoryMB, 0), MemoryMaxMB: max(r.MemoryMaxMB, 0), DiskMB: max(r.DiskMB, 0),
	}
}

// claimsOn returns the assigned ports, cores and devices of a node, including those of the plan.
func (t *plannedUsage) claimsOn(c cluster, n *fleet.Node) *placement.Claims {
	if t.claims == nil {
		t.claims = map[fleet.NodeID]*placement.Claims{}
	}
	if t.claims[n.ID] == nil {
		t.claims[n.ID] = claimsWithout(c, n, nil)
	}
	return t.claims[n.ID]
}

// claimsWithout returns the assigned ports, cores and devices of a node without those of the allocations
// gone.
func claimsWithout(c cluster, n *fleet.Node, gone map[fleet.AllocID]bool) *placement.Claims {
	claims := placement.NewClaims(n)
	for a := range c.AllocsByNode(n.ID) {
		if a.OccupiesNode() && !gone[a.ID] {
			claims.Hold(a.Allotment)
		}
	}
	return claims
}

// portSeed returns the number from which the search for dynamic ports on a node starts.
func (r *ranking) portSeed(c *candidate) uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.node.ID))
	return h.Sum64() + r.seed
}
