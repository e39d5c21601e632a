package scheduler

import (
	"container/heap"
	"hash/fnv"
	"iter"
	"math"

	"skerry/fleet"
	"skerry/reconcile"
)

const (
	// candidatesMin is how many nodes with room a group's placements choose among
	// at least, where there are so many; as many as there are placements where that
	// is more. A group that is spread, or prefers nodes, chooses among all.
	candidatesMin = 64
	// candidatesLow is when more are drawn, because others are full by now.
	candidatesLow = 16
)

// cluster is what ranking reads of the state.
type cluster interface {
	nodeLister
	Node(id fleet.NodeID) (*fleet.Node, bool)
	Used(id fleet.NodeID) fleet.Resources
	AllocsByNode(id fleet.NodeID) iter.Seq[*fleet.Alloc]
	Scheduling() fleet.SchedulerConfiguration
	Pool(name string) (*fleet.Pool, bool)
	AwaitingEvals() iter.Seq[*fleet.Evaluation]
}

// ranking finds nodes for the placements of one group. The scores of nodes of one
// lane do not depend on each other, and a placement changes only its own node's; so
// the best node of a lane is the top of a heap. It belongs to one goroutine.
type ranking struct {
	cluster         cluster
	g               *fleet.TaskGroup
	askedResources  fleet.Resources // on a node without regard to its cores
	needsAssignment bool            // more than amounts
	feasibility     *feasibility
	distinctRules   []*distinctRule
	affinities      *affinityScorer // nil: none
	spreads         []*spreadScorer
	plannedUsage    *plannedUsage
	sampler         *nodeSampler // nil: every placement names its node
	candidateTarget int          // how many candidates are wanted
	seed            uint64
	lastPool        string                       // of the node that was looked at last
	lastPoolConfig  fleet.SchedulerConfiguration // how its nodes are used

	buckets         []*spreadBucket
	bucketByValues  map[string]*spreadBucket
	byNode          map[fleet.NodeID]*candidate
	drawn           []*candidate          // as byNode, in order
	noEvictionHelps bool                  // no eviction helps
	askedByID       map[fleet.NodeID]bool // looked at out of turn
	// stoppingTried is how many of attempt.stoppingNodes make no room for the group.
	stoppingTried int
	metric        fleet.AllocMetric // of all nodes looked at so far
	// awayNodes are the suitable nodes that were drawn or asked for and are not connected.
	awayNodes map[fleet.NodeID]*fleet.Node
	shown     int // placements that showed others
}

// candidate is a node on which the group may run.
type candidate struct {
	node            *fleet.Node
	bucket          *spreadBucket
	order           int // in which it was drawn: decides among equals
	index           int // in the heap, -1 where it is not in it
	full            bool
	countedReserved bool            // and counted as such
	used            fleet.Resources // by what the state knows
	parts           [partCount]float64
	sum             float64 // of the parts that count
	n               float64 // how many count
	score           float64 // their mean
}

// scoreWithPart is the candidate's score with one part more, where that is not 0.
func (c *candidate) scoreWithPart(part float64) float64 {
	if part == 0 {
		return c.score
	}
	return (c.sum + part) / (c.n + 1)
}

// newRanking makes the ranking of a group.
func newRanking(c cluster, job *fleet.Job, g *fleet.TaskGroup, t *plannedUsage, draw *nodeSampler) (*ranking, error) {
	where, err := newFeasibility(job, g)
	if err != nil {
		return nil, err
	}
	likes, err := newAffinityScorer(job, g)
	if err != nil {
		return nil, err
	}
	r := &ranking{
		cluster: c, g: g, askedResources: g.Resources(), needsAssignment: g.NeedsAssignedResources(), feasibility: where, distinctRules: newDistinctRules(job, g), affinities: likes,
		spreads: newSpreadScorers(job, g), plannedUsage: t, sampler: draw, candidateTarget: candidatesMin, byNode: map[fleet.NodeID]*candidate{},
		bucketByValues: map[string]*spreadBucket{},
	}
	if r.needsAssignment {
		h := fnv.New64a()
		h.Write([]byte(job.Namespace + "/" + string(job.ID) + "/" + g.Name))
		r.seed = h.Sum64()
	}
	if len(r.spreads) == 0 {
		r.buckets = []*spreadBucket{{}}
	}
	if len(r.spreads) > 0 || likes != nil {
		r.candidateTarget = math.MaxInt
	}
	for id, groups := range t.byNode {
		n, ok := c.Node(id)
		if !ok {
			continue
		}
		for group, count := range groups {
			r.adjustRuleCounts(n, group, count)
		}
	}
	return r, nil
}

// adjustRuleCounts counts delta allocations of a group on a node, for what looks at where the
// others are.
func (r *ranking) adjustRuleCounts(n *fleet.Node, group string, delta int) {
	for _, d := range r.distinctRules {
		d.adjustValueCount(n, group, delta)
	}
	if group != r.g.Name {
		return
	}
	for _, s := range r.spreads {
		if v, ok := n.Value(s.attribute); ok {
			s.counts[v] += delta
		}
	}
}

// schedulerConfigFor is how jobs are scheduled on a node.
func (r *ranking) schedulerConfigFor(n *fleet.Node) fleet.SchedulerConfiguration {
	if r.lastPoolConfig.SchedulerAlgorithm == "" || r.lastPool != n.NodePool {
		pool, _ := r.cluster.Pool(n.NodePool)
		r.lastPool, r.lastPoolConfig = n.NodePool, r.cluster.Scheduling().For(pool)
	}
	return r.lastPoolConfig
}

// placementChoice is a node for a placement.
type placementChoice struct {
	node              *fleet.Node
	takes             fleet.Resources
	assignedResources *fleet.AssignedResources
	score             float64
	metric            *fleet.AllocMetric
}

// placeOnBestNode finds the best node for a placement and takes its room; false where none
// has any.
func (r *ranking) placeOnBestNode(p reconcile.Placement) (placementChoice, bool) {
	if p.Node != "" {
		return r.placeOnNode(p.Node)
	}
	if r.g.EphemeralDisk.Sticky && p.Previous != nil && p.Previous.NodeID != p.AvoidNode {
		if made, ok := r.placeOnNode(p.Previous.NodeID); ok {
			return made, true
		}
	}
	best, score := r.bestCandidate()
	if best == nil {
		return placementChoice{}, false
	}
	if best.node.ID != p.AvoidNode {
		return r.assignCandidate(best, score, 0), true
	}
	heap.Remove(&best.bucket.heap, best.index)
	second, secondScore := r.bestCandidate()
	heap.Push(&best.bucket.heap, best)
	part := r.spreadBoost(best.bucket)
	n := best.n + 1
	if part != 0 {
		n++
	}
	avoided := (best.sum + part + reschedulePenalty) / n
	if second != nil && secondScore > avoided {
		return r.assignCandidate(second, secondScore, 0), true
	}
	return r.assignCandidate(best, avoided, reschedulePenalty), true
}

// placeOnNode takes the room of a placement on one node; false where there is none.
func (r *ranking) placeOnNode(id fleet.NodeID) (placementChoice, bool) {
	c := r.byNode[id]
	if c == nil && !r.askedByID[id] {
		if n, ok := r.cluster.Node(id); ok {
			r.considerNode(n)
			if r.askedByID == nil {
				r.askedByID = map[fleet.NodeID]bool{}
			}
			r.askedByID[id] = true
		}
		c = r.byNode[id]
	}
	if c == nil || c.index < 0 || r.brokenDistinctRule(c.node) != "" || r.isReservedForOther(c) {
		return placementChoice{}, false
	}
	return r.assignCandidate(c, c.scoreWithPart(r.spreadBoost(c.bucket)), 0), true
}

// assignCandidate gives a candidate's room to a placement.
func (r *ranking) assignCandidate(c *candidate, score, avoided float64) placementChoice {
	made := placementChoice{node: c.node, takes: r.resourcesOnNode(c.node), score: score}
	made.metric = r.placementMetric(c, score, avoided)
	if r.needsAssignment {
		claims := r.plannedUsage.claimsOn(r.cluster, c.node)
		made.assignedResources, _, _ = claims.Offer(r.g, r.portSeed(c))
		claims.Hold(made.assignedResources)
		if r.plannedUsage.assignedByPlan == nil {
			r.plannedUsage.assignedByPlan = map[fleet.NodeID][]*fleet.AssignedResources{}
		}
		r.plannedUsage.assignedByPlan[c.node.ID] = append(r.plannedUsage.assignedByPlan[c.node.ID], made.assignedResources)
	}
	r.adjustGroupCount(c.node, 1)
	r.plannedUsage.planned[c.node.ID] = r.plannedUsage.planned[c.node.ID].Add(made.takes)
	if c.node.MaxAllocs > 0 {
		if r.plannedUsage.placed == nil {
			r.plannedUsage.placed = map[fleet.NodeID]int{}
		}
		r.plannedUsage.placed[c.node.ID]++
	}
	r.rescoreCandidate(c)
	return made
}

// brokenDistinctRule names the distinct rule that forbids a node, "".
func (r *ranking) brokenDistinctRule(n *fleet.Node) string {
	for _, d := range r.distinctRules {
		if !d.canPlaceOn(n) {
			return d.c.String()
		}
	}
	return ""
}

// drawCandidates draws nodes until there are as many candidates as wanted.
func (r *ranking) drawCandidates() {
	for r.sampler != nil && (r.candidateTarget == math.MaxInt || len(r.buckets[0].heap) < r.candidateTarget) {
		n := r.sampler.nextNode()
		if n == nil {
			return
		}
		r.considerNode(n)
	}
}

// considerNode makes a candidate of a node that may take new work.
func (r *ranking) considerNode(n *fleet.Node) {
	if r.askedByID[n.ID] {
		return
	}
	if !n.Schedulable() {
		if n.IsAway() && r.feasibility.whyInfeasible(n) == "" {
			if r.awayNodes == nil {
				r.awayNodes = map[fleet.NodeID]*fleet.Node{}
			}
			r.awayNodes[n.ID] = n
		}
		return
	}
	unsuited := r.feasibility.whyInfeasible(n)
	if r.feasibility.job.InPool(n.NodePool) {
		r.metric.NodesInPool++
	}
	if !r.feasibility.inScope(n) {
		return
	}
	r.metric.NodesAvailable = incrementCapped(r.metric.NodesAvailable, n.Datacenter)
	r.metric.NodesEvaluated++
	if unsuited != "" {
		r.recordFiltered(n, unsuited)
		return
	}
	c := &candidate{node: n, order: len(r.byNode), index: -1, used: r.cluster.Used(n.ID), bucket: r.bucketForNode(n)}
	if r.affinities != nil {
		c.parts[partAffinity] = r.affinities.affinityScore(n)
	}
	r.byNode[n.ID] = c
	r.drawn = append(r.drawn, c)
	r.rescoreCandidate(c)
}

// rescoreCandidate scores a candidate and puts it to its place in the heap, or takes it out
// where there is no room left.
func (r *ranking) rescoreCandidate(c *candidate) {
	taken, liked, short := r.exhaustedDimension(c)
	if short != "" {
		if c.index >= 0 {
			heap.Remove(&c.bucket.heap, c.index)
		}
		if !c.full {
			c.full = true
			r.recordExhausted(c.node, short)
		}
		return
	}
	r.scoreCandidate(c, taken, liked)
	if c.index >= 0 {
		heap.Fix(&c.bucket.heap, c.index)
	} else {
		heap.Push(&c.bucket.heap, c)
	}
}

// scoreCandidate scores a candidate.
func (r *ranking) scoreCandidate(c *candidate, taken fleet.Resources, liked float64) {
	c.parts[partFit] = binpackScore(taken, c.node.Free())
	if r.schedulerConfigFor(c.node).SchedulerAlgorithm == fleet.AlgorithmSpread {
		c.parts[partFit] = 1 - c.parts[partFit]
	}
	c.sum, c.n = c.parts[partFit], 1
	c.parts[partAntiAffinity] = 0
	if there := r.plannedUsage.byNode[c.node.ID][r.g.Name]; there > 0 {
		c.parts[partAntiAffinity] = antiAffinityScore(there, r.g.Count)
		c.sum, c.n = c.sum+c.parts[partAntiAffinity], c.n+1
	}
	if r.affinities != nil {
		c.sum, c.n = c.sum+c.parts[partAffinity], c.n+1
	}
	if c.parts[partDevices] = liked; liked != 0 {
		c.sum, c.n = c.sum+liked, c.n+1
	}
	c.score = c.sum / c.n
}

// adjustGroupCount counts delta allocations of the group on a node.
func (r *ranking) adjustGroupCount(n *fleet.Node, delta int) {
	groups := r.plannedUsage.byNode[n.ID]
	if groups == nil {
		groups = map[string]int{}
		r.plannedUsage.byNode[n.ID] = groups
	}
	groups[r.g.Name] += delta
	r.adjustRuleCounts(n, r.g.Name, delta)
}

// adjustReplacedAlloc counts an allocation that is to be replaced as gone (-1) or as staying
// after all (1): it stands in nobody's way, but its room is not free yet.
func (r *ranking) adjustReplacedAlloc(a *fleet.Alloc, delta int) {
	n, ok := r.cluster.Node(a.NodeID)
	if !ok {
		return
	}
	r.adjustGroupCount(n, delta)
	if c := r.byNode[n.ID]; c != nil && r.brokenDistinctRule(n) == "" {
		r.rescoreCandidate(c)
	}
}
