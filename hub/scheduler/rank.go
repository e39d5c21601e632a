package scheduler

import (
	"cmp"
	"container/heap"
	"hash/fnv"
	"iter"
	"math"

	"skerry/fleet"
	"skerry/reconcile"
)

const (
	// candidatesMin is how many nodes with capacity the placements of a group choose among, or as many
	// as there are placements, if that is more. A group with spreads or affinities chooses among all.
	candidatesMin = 64
	// candidatesLow: below this number of candidates more nodes are drawn.
	candidatesLow = 16
)

// cluster is the part of state.View that ranking reads.
type cluster interface {
	nodeLister
	Node(id fleet.NodeID) (*fleet.Node, bool)
	Used(id fleet.NodeID) fleet.Resources
	AllocsByNode(id fleet.NodeID) iter.Seq[*fleet.Alloc]
	Scheduling() fleet.SchedulerConfiguration
	Pool(name string) (*fleet.Pool, bool)
	AwaitingEvals() iter.Seq[*fleet.Evaluation]
	Volume(id fleet.VolumeID) (*fleet.Volume, bool)
}

// ranking finds nodes for the placements of one group. Candidates of one bucket have independent scores,
// and a placement changes only its own node's; so the best candidate of a bucket is the top of a heap.
// Only one goroutine may use it.
type ranking struct {
	cluster         cluster
	g               *fleet.TaskGroup
	askedResources  fleet.Resources // of one allocation; see resourcesOnNode
	needsAssignment bool            // the group needs ports, cores or devices
	feasibility     *feasibility
	distinctRules   []*distinctRule
	affinities      *affinityScorer // nil: none
	spreads         []*spreadScorer
	plannedUsage    *plannedUsage
	sampler         *nodeSampler                 // nil: every placement names its node
	candidateTarget int                          // number of candidates to draw; math.MaxInt: all nodes
	seed            uint64                       // see portSeed
	lastPool        string                       // node pool of lastPoolConfig
	lastPoolConfig  fleet.SchedulerConfiguration // cached by schedulerConfigFor

	buckets         []*spreadBucket
	bucketByValues  map[string]*spreadBucket
	byNode          map[fleet.NodeID]*candidate
	drawn           []*candidate          // the candidates in byNode, in the order of drawing
	noEvictionHelps bool                  // preemption helps on no node
	askedByID       map[fleet.NodeID]bool // nodes that placements named, considered before they were drawn
	// stoppingTried is the number of attempt.stoppingNodes that are known not to help the group.
	stoppingTried int
	metric        fleet.AllocMetric // of all nodes considered so far
	// awayNodes are the suitable nodes, among those considered, that are away.
	awayNodes map[fleet.NodeID]*fleet.Node
	shown     int // placements whose metric was made; see othersShownTimes
}

// candidate is a suitable node for the group.
type candidate struct {
	node            *fleet.Node
	bucket          *spreadBucket
	order           int             // order of drawing; decides between equal scores
	index           int             // in the heap; -1: not in it
	full            bool            // has no capacity, and is counted as exhausted
	countedReserved bool            // is reserved for another job, and counted as exhausted
	used            fleet.Resources // according to the state, without this plan
	parts           [partCount]float64
	sum             float64 // sum of the parts that count
	n               float64 // number of the parts that count
	score           float64 // their mean
}

// scoreWithPart returns the candidate's score with one more part; a part of 0 does not count.
func (c *candidate) scoreWithPart(part float64) float64 {
	if part == 0 {
		return c.score
	}
	return (c.sum + part) / (c.n + 1)
}

// newRanking makes the ranking of a group. draw is nil if every placement names its node. It fails if a
// constraint or affinity cannot be compiled.
func newRanking(c cluster, job *fleet.Job, g *fleet.TaskGroup, t *plannedUsage, draw *nodeSampler) (*ranking, error) {
	where, err := newFeasibility(c, job, g)
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

// adjustRuleCounts adds delta allocations of a group on a node to the distinct rules and spreads.
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

// schedulerConfigFor returns the scheduler configuration of a node's pool.
func (r *ranking) schedulerConfigFor(n *fleet.Node) fleet.SchedulerConfiguration {
	if r.lastPoolConfig.SchedulerAlgorithm == "" || r.lastPool != n.NodePool {
		pool, _ := r.cluster.Pool(n.NodePool)
		r.lastPool, r.lastPoolConfig = n.NodePool, r.cluster.Scheduling().For(pool)
	}
	return r.lastPoolConfig
}

// placementChoice is the node chosen for a placement, with the resources that it takes there.
type placementChoice struct {
	node              *fleet.Node
	takes             fleet.Resources
	assignedResources *fleet.AssignedResources
	score             float64
	metric            *fleet.AllocMetric
}

// placeOnBestNode finds the best node for a placement and reserves its resources. It returns false if no
// node has capacity. A sticky group prefers the node of the previous allocation. The node to avoid gets a
// penalty.
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

// placeOnNode reserves the resources of a placement on one node; false: the node cannot take it.
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

// assignCandidate reserves a placement's resources, ports, cores and devices on a candidate, and updates
// its score.
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

// brokenDistinctRule returns the distinct rule that forbids one more allocation on a node, or "".
func (r *ranking) brokenDistinctRule(n *fleet.Node) string {
	for _, d := range r.distinctRules {
		if !d.canPlaceOn(n) {
			return d.c.String()
		}
	}
	return ""
}

// drawCandidates draws nodes until there are as many candidates as wanted, or no nodes are left.
func (r *ranking) drawCandidates() {
	for r.sampler != nil && (r.candidateTarget == math.MaxInt || len(r.buckets[0].heap) < r.candidateTarget) {
		n := r.sampler.nextNode()
		if n == nil {
			return
		}
		r.considerNode(n)
	}
}

// considerNode makes a node a candidate, or counts in the metric why it is not one. Ineligible nodes are
// ignored.
func (r *ranking) considerNode(n *fleet.Node) {
	if r.askedByID[n.ID] {
		return
	}
	if !n.Eligible() {
		if n.IsAway() && r.feasibility.whyInfeasible(n) == "" {
			if r.awayNodes == nil {
				r.awayNodes = map[fleet.NodeID]*fleet.Node{}
			}
			r.awayNodes[n.ID] = n
		}
		return
	}
	unsuited := cmp.Or(r.feasibility.whyInfeasible(n), n.WhyFull())
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

// rescoreCandidate computes the score of a candidate and moves it in its heap. Without capacity it leaves
// the heap.
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

// scoreCandidate computes a candidate's parts and score. taken is what would be in use with one more
// allocation, liked the score of its devices.
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

// adjustGroupCount adds delta allocations of the group on a node to all counts.
func (r *ranking) adjustGroupCount(n *fleet.Node, delta int) {
	groups := r.plannedUsage.byNode[n.ID]
	if groups == nil {
		groups = map[string]int{}
		r.plannedUsage.byNode[n.ID] = groups
	}
	groups[r.g.Name] += delta
	r.adjustRuleCounts(n, r.g.Name, delta)
}

// adjustReplacedAlloc counts an allocation that is to be replaced as gone (-1), or as staying after all
// (1). Its resources stay in use.
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
