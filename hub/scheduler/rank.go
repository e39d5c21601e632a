package scheduler

import (
	"container/heap"
	"hash/fnv"
	"iter"
	"maps"
	"math"
	"slices"

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
	// othersShown is how many other candidates the first placements of a group show,
	// and othersShownTimes how many placements those are: each is an entry in the log.
	othersShown      = 4
	othersShownTimes = 3
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
	cluster cluster
	g       *fleet.TaskGroup
	ask     fleet.Resources // on a node without regard to its cores
	needs   bool            // more than amounts
	where   *feasibility
	rules   []*distinct
	likes   *liking // nil: none
	spreads []*spreading
	tenants *tenancy
	draw    *sample // nil: every placement names its node
	target  int     // how many candidates are wanted
	seed    uint64
	pool    string                       // of the node that was looked at last
	pooled  fleet.SchedulerConfiguration // how its nodes are used

	lanes     []*lane
	laneNamed map[string]*lane
	byNode    map[fleet.NodeID]*candidate
	drawn     []*candidate          // as byNode, in order
	hopeless  bool                  // no eviction helps
	asked     map[fleet.NodeID]bool // looked at out of turn
	// stoppingTried is how many of attempt.stoppingNodes make no room for the group.
	stoppingTried int
	metric        fleet.AllocMetric // of all nodes looked at so far
	// awayNodes are the suitable nodes that were drawn or asked for and are not connected.
	awayNodes map[fleet.NodeID]*fleet.Node
	shown     int // placements that showed others
}

// candidate is a node on which the group may run.
type candidate struct {
	node   *fleet.Node
	lane   *lane
	order  int // in which it was drawn: decides among equals
	index  int // in the heap, -1 where it is not in it
	full   bool
	booked bool            // and counted as such
	used   fleet.Resources // by what the state knows
	parts  [partCount]float64
	sum    float64 // of the parts that count
	n      float64 // how many count
	score  float64 // their mean
}

// mean is the candidate's score with one part more, where that is not 0.
func (c *candidate) mean(part float64) float64 {
	if part == 0 {
		return c.score
	}
	return (c.sum + part) / (c.n + 1)
}

// newRanking makes the ranking of a group.
func newRanking(c cluster, job *fleet.Job, g *fleet.TaskGroup, t *tenancy, draw *sample) (*ranking, error) {
	where, err := newFeasibility(job, g)
	if err != nil {
		return nil, err
	}
	likes, err := likings(job, g)
	if err != nil {
		return nil, err
	}
	r := &ranking{
		cluster: c, g: g, ask: g.Resources(), needs: g.NeedsAllotment(), where: where, rules: distincts(job, g), likes: likes,
		spreads: spreadings(job, g), tenants: t, draw: draw, target: candidatesMin, byNode: map[fleet.NodeID]*candidate{},
		laneNamed: map[string]*lane{},
	}
	if r.needs {
		h := fnv.New64a()
		h.Write([]byte(job.Namespace + "/" + string(job.ID) + "/" + g.Name))
		r.seed = h.Sum64()
	}
	if len(r.spreads) == 0 {
		r.lanes = []*lane{{}}
	}
	if len(r.spreads) > 0 || likes != nil {
		r.target = math.MaxInt
	}
	for id, groups := range t.byNode {
		n, ok := c.Node(id)
		if !ok {
			continue
		}
		for group, count := range groups {
			r.count(n, group, count)
		}
	}
	return r, nil
}

// count counts delta allocations of a group on a node, for what looks at where the
// others are.
func (r *ranking) count(n *fleet.Node, group string, delta int) {
	for _, d := range r.rules {
		d.count(n, group, delta)
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

// config is how jobs are scheduled on a node.
func (r *ranking) config(n *fleet.Node) fleet.SchedulerConfiguration {
	if r.pooled.SchedulerAlgorithm == "" || r.pool != n.NodePool {
		pool, _ := r.cluster.Pool(n.NodePool)
		r.pool, r.pooled = n.NodePool, r.cluster.Scheduling().For(pool)
	}
	return r.pooled
}

// choice is a node for a placement.
type choice struct {
	node      *fleet.Node
	takes     fleet.Resources
	allotment *fleet.Allotment
	score     float64
	metric    *fleet.AllocMetric
}

// place finds the best node for a placement and takes its room; false where none
// has any.
func (r *ranking) place(p reconcile.Placement) (choice, bool) {
	if p.Node != "" {
		return r.placeOn(p.Node)
	}
	if r.g.EphemeralDisk.Sticky && p.Previous != nil && p.Previous.NodeID != p.AvoidNode {
		if made, ok := r.placeOn(p.Previous.NodeID); ok {
			return made, true
		}
	}
	best, score := r.top()
	if best == nil {
		return choice{}, false
	}
	if best.node.ID != p.AvoidNode {
		return r.take(best, score, 0), true
	}
	heap.Remove(&best.lane.heap, best.index)
	second, secondScore := r.top()
	heap.Push(&best.lane.heap, best)
	part := r.spread(best.lane)
	n := best.n + 1
	if part != 0 {
		n++
	}
	avoided := (best.sum + part + penalty) / n
	if second != nil && secondScore > avoided {
		return r.take(second, secondScore, 0), true
	}
	return r.take(best, avoided, penalty), true
}

// placeOn takes the room of a placement on one node; false where there is none.
func (r *ranking) placeOn(id fleet.NodeID) (choice, bool) {
	c := r.byNode[id]
	if c == nil && !r.asked[id] {
		if n, ok := r.cluster.Node(id); ok {
			r.consider(n)
			if r.asked == nil {
				r.asked = map[fleet.NodeID]bool{}
			}
			r.asked[id] = true
		}
		c = r.byNode[id]
	}
	if c == nil || c.index < 0 || r.broken(c.node) != "" || r.booked(c) {
		return choice{}, false
	}
	return r.take(c, c.mean(r.spread(c.lane)), 0), true
}

// take gives a candidate's room to a placement.
func (r *ranking) take(c *candidate, score, avoided float64) choice {
	made := choice{node: c.node, takes: r.askOn(c.node), score: score}
	made.metric = r.shows(c, score, avoided)
	if r.needs {
		claims := r.tenants.claimsOn(r.cluster, c.node)
		made.allotment, _, _ = claims.Offer(r.g, r.portSeed(c))
		claims.Hold(made.allotment)
		if r.tenants.allotted == nil {
			r.tenants.allotted = map[fleet.NodeID][]*fleet.Allotment{}
		}
		r.tenants.allotted[c.node.ID] = append(r.tenants.allotted[c.node.ID], made.allotment)
	}
	r.occupy(c.node, 1)
	r.tenants.planned[c.node.ID] = r.tenants.planned[c.node.ID].Add(made.takes)
	if c.node.MaxAllocs > 0 {
		if r.tenants.placed == nil {
			r.tenants.placed = map[fleet.NodeID]int{}
		}
		r.tenants.placed[c.node.ID]++
	}
	r.update(c)
	return made
}

// broken names the distinct rule that forbids a node, "".
func (r *ranking) broken(n *fleet.Node) string {
	for _, d := range r.rules {
		if !d.allows(n) {
			return d.c.String()
		}
	}
	return ""
}

// fill draws nodes until there are as many candidates as wanted.
func (r *ranking) fill() {
	for r.draw != nil && (r.target == math.MaxInt || len(r.lanes[0].heap) < r.target) {
		n := r.draw.next()
		if n == nil {
			return
		}
		r.consider(n)
	}
}

// consider makes a candidate of a node that may take new work.
func (r *ranking) consider(n *fleet.Node) {
	if r.asked[n.ID] {
		return
	}
	if !n.Schedulable() {
		if n.IsAway() && r.where.check(n) == "" {
			if r.awayNodes == nil {
				r.awayNodes = map[fleet.NodeID]*fleet.Node{}
			}
			r.awayNodes[n.ID] = n
		}
		return
	}
	unsuited := r.where.check(n)
	if r.where.job.InPool(n.NodePool) {
		r.metric.NodesInPool++
	}
	if !r.where.inScope(n) {
		return
	}
	r.metric.NodesAvailable = plus(r.metric.NodesAvailable, n.Datacenter)
	r.metric.NodesEvaluated++
	if unsuited != "" {
		r.filtered(n, unsuited)
		return
	}
	c := &candidate{node: n, order: len(r.byNode), index: -1, used: r.cluster.Used(n.ID), lane: r.laneOf(n)}
	if r.likes != nil {
		c.parts[partAffinity] = r.likes.score(n)
	}
	r.byNode[n.ID] = c
	r.drawn = append(r.drawn, c)
	r.update(c)
}

// update scores a candidate and puts it to its place in the heap, or takes it out
// where there is no room left.
func (r *ranking) update(c *candidate) {
	taken, liked, short := r.short(c)
	if short != "" {
		if c.index >= 0 {
			heap.Remove(&c.lane.heap, c.index)
		}
		if !c.full {
			c.full = true
			r.exhausted(c.node, short)
		}
		return
	}
	r.rate(c, taken, liked)
	if c.index >= 0 {
		heap.Fix(&c.lane.heap, c.index)
	} else {
		heap.Push(&c.lane.heap, c)
	}
}

// rate scores a candidate.
func (r *ranking) rate(c *candidate, taken fleet.Resources, liked float64) {
	c.parts[partFit] = fit(taken, c.node.Free())
	if r.config(c.node).SchedulerAlgorithm == fleet.AlgorithmSpread {
		c.parts[partFit] = 1 - c.parts[partFit]
	}
	c.sum, c.n = c.parts[partFit], 1
	c.parts[partCrowding] = 0
	if there := r.tenants.byNode[c.node.ID][r.g.Name]; there > 0 {
		c.parts[partCrowding] = crowding(there, r.g.Count)
		c.sum, c.n = c.sum+c.parts[partCrowding], c.n+1
	}
	if r.likes != nil {
		c.sum, c.n = c.sum+c.parts[partAffinity], c.n+1
	}
	if c.parts[partDevices] = liked; liked != 0 {
		c.sum, c.n = c.sum+liked, c.n+1
	}
	c.score = c.sum / c.n
}

// occupy counts delta allocations of the group on a node.
func (r *ranking) occupy(n *fleet.Node, delta int) {
	groups := r.tenants.byNode[n.ID]
	if groups == nil {
		groups = map[string]int{}
		r.tenants.byNode[n.ID] = groups
	}
	groups[r.g.Name] += delta
	r.count(n, r.g.Name, delta)
}

// move counts an allocation that is to be replaced as gone (-1) or as staying
// after all (1): it stands in nobody's way, but its room is not free yet.
func (r *ranking) move(a *fleet.Alloc, delta int) {
	n, ok := r.cluster.Node(a.NodeID)
	if !ok {
		return
	}
	r.occupy(n, delta)
	if c := r.byNode[n.ID]; c != nil && r.broken(n) == "" {
		r.update(c)
	}
}

// rejectionsShown is of how many nodes a failure says what each of them lacks.
const rejectionsShown = 5

// reject notes why a node is left out, which is found out of those alone that are shown.
func (r *ranking) reject(n *fleet.Node, why func() string) {
	if len(r.metric.RejectedNodes) < rejectionsShown {
		r.metric.RejectedNodes = append(r.metric.RejectedNodes, fleet.NodeRejection{NodeID: n.ID, NodeName: n.Name, Why: why()})
	}
}

// exhausted counts a node that has too little of something.
func (r *ranking) exhausted(n *fleet.Node, short string) {
	r.reject(n, func() string { return r.lack(n, short) })
	r.metric.NodesExhausted++
	r.metric.DimensionExhausted = plus(r.metric.DimensionExhausted, short)
	if n.NodeClass != "" {
		r.metric.ClassExhausted = plus(r.metric.ClassExhausted, n.NodeClass)
	}
}

func (r *ranking) filtered(n *fleet.Node, why string) {
	r.reject(n, func() string { return unmet(n, why) })
	r.metric.NodesFiltered++
	r.metric.ConstraintFiltered = plus(r.metric.ConstraintFiltered, why)
	if n.NodeClass != "" {
		r.metric.ClassFiltered = plus(r.metric.ClassFiltered, n.NodeClass)
	}
}

// failure is why nothing could be placed.
func (r *ranking) failure() *fleet.AllocMetric {
	m := r.metric
	m.NodesAvailable, m.RejectedNodes = maps.Clone(m.NodesAvailable), slices.Clone(m.RejectedNodes)
	m.NodePool = r.where.job.NodePool
	m.NodesAway = r.countAwayNodesWithCapacity()
	if m.NodesExhausted > 0 {
		m.ResourcesExhausted = make(map[string]fleet.Resources, len(r.g.Tasks))
		for _, t := range r.g.Tasks {
			m.ResourcesExhausted[t.Name] = t.Resources.Resources
		}
	}
	return &m
}

// countAwayNodesWithCapacity counts the nodes on which the group would find a place if they
// were connected.
func (r *ranking) countAwayNodesWithCapacity() int {
	count := 0
	for _, n := range r.awayNodes {
		_, _, short := r.short(&candidate{node: n, used: r.cluster.Used(n.ID)})
		if short == "" && r.broken(n) == "" {
			count++
		}
	}
	return count
}

// countedApart is how many keys of a metric are counted each for itself: every node of a
// large fleet may have a datacenter, or a class, of its own.
const (
	countedApart = 64
	allOthers    = "(others)"
)

func plus(m map[string]int, key string) map[string]int {
	if m == nil {
		m = map[string]int{}
	}
	if _, known := m[key]; !known && len(m) >= countedApart {
		key = allOthers
	}
	m[key]++
	return m
}
