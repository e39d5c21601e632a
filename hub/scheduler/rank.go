package scheduler

import (
	"container/heap"
	"maps"

	"skerry/fleet"
	"skerry/reconcile"
)

const (
	// candidatesMin is how many nodes with room a group's placements choose among
	// at least, where there are so many; as many as there are placements where that
	// is more.
	candidatesMin = 64
	// candidatesLow is when more are drawn, because others are full by now.
	candidatesLow = 16
)

// cluster is what ranking reads of the state.
type cluster interface {
	nodeLister
	Node(id fleet.NodeID) (*fleet.Node, bool)
	Used(id fleet.NodeID) fleet.Resources
}

// tenancy is where a job's allocations are: those that stay, and those that the
// plan places.
type tenancy struct {
	byNode  map[fleet.NodeID]map[string]int  // allocations by group
	planned map[fleet.NodeID]fleet.Resources // taken by the plan, beyond what is used now
}

// ranking finds nodes for the placements of one group. The scores of nodes do not
// depend on each other, and a placement changes only its own node's; so the best
// node is the top of a heap. It belongs to one goroutine.
type ranking struct {
	cluster cluster
	g       *fleet.TaskGroup
	ask     fleet.Resources
	where   *feasibility
	rules   []*distinct
	tenants *tenancy
	draw    *sample // nil: every placement names its node
	target  int     // how many candidates are wanted

	heap   candidates
	byNode map[fleet.NodeID]*candidate
	metric fleet.AllocMetric // of all nodes looked at so far
}

// candidate is a node on which the group may run.
type candidate struct {
	node  *fleet.Node
	order int // in which it was drawn: decides among equals
	index int // in the heap, -1 where it is not in it
	full  bool
	used  fleet.Resources // by what the state knows
	parts [2]float64      // fit and crowding
	score float64
}

// newRanking makes the ranking of a group for n placements.
func newRanking(c cluster, job *fleet.Job, g *fleet.TaskGroup, t *tenancy, draw *sample) (*ranking, error) {
	where, err := newFeasibility(job, g)
	if err != nil {
		return nil, err
	}
	r := &ranking{
		cluster: c, g: g, ask: g.Resources(), where: where, rules: distincts(job, g), tenants: t, draw: draw,
		target: candidatesMin, byNode: map[fleet.NodeID]*candidate{},
	}
	for id, groups := range t.byNode {
		n, ok := c.Node(id)
		for group, count := range groups {
			for _, d := range r.rules {
				if ok {
					d.count(n, group, count)
				}
			}
		}
	}
	return r, nil
}

// choice is a node for a placement.
type choice struct {
	node   *fleet.Node
	score  float64
	metric *fleet.AllocMetric
}

// place finds the best node for a placement and takes its room; false where none
// has any.
func (r *ranking) place(p reconcile.Placement) (choice, bool) {
	if p.Node != "" {
		return r.placeOn(p)
	}
	best := r.top()
	if best == nil {
		return choice{}, false
	}
	if best.node.ID == p.AvoidNode {
		heap.Pop(&r.heap)
		avoided := best
		if second := r.top(); second != nil && second.score > r.avoided(best) {
			best = second
		}
		heap.Push(&r.heap, avoided)
	}
	return r.take(best, p.AvoidNode), true
}

// take gives a candidate's room to a placement.
func (r *ranking) take(c *candidate, avoid fleet.NodeID) choice {
	made := r.choice(c, avoid)
	r.occupy(c.node, 1)
	r.tenants.planned[c.node.ID] = r.tenants.planned[c.node.ID].Add(r.ask)
	r.update(c)
	return made
}

// top returns the best candidate that the distinct rules allow, nil for none.
func (r *ranking) top() *candidate {
	for {
		if len(r.heap) < candidatesLow {
			r.fill()
		}
		if len(r.heap) == 0 {
			return nil
		}
		c := r.heap[0]
		broken := r.broken(c.node)
		if broken == "" {
			return c
		}
		heap.Pop(&r.heap)
		r.filtered(c.node, broken)
	}
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
	for len(r.heap) < r.target {
		n := r.draw.next()
		if n == nil {
			return
		}
		r.consider(n)
	}
}

// consider makes a candidate of a node that may take new work.
func (r *ranking) consider(n *fleet.Node) {
	if !n.Schedulable() {
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
	c := &candidate{node: n, order: len(r.byNode), index: -1, used: r.cluster.Used(n.ID)}
	r.byNode[n.ID] = c
	r.update(c)
}

// update scores a candidate and puts it to its place in the heap, or takes it out
// where there is no room left.
func (r *ranking) update(c *candidate) {
	taken := c.used.Add(r.tenants.planned[c.node.ID]).Add(r.ask)
	if short := taken.Exceeds(c.node.Free()); short != "" {
		if c.index >= 0 {
			heap.Remove(&r.heap, c.index)
		}
		if !c.full {
			c.full = true
			r.metric.NodesExhausted++
			r.metric.DimensionExhausted = plus(r.metric.DimensionExhausted, short)
		}
		return
	}
	c.parts[0], c.parts[1] = fit(taken, c.node.Free()), 0
	c.score = c.parts[0]
	if there := r.tenants.byNode[c.node.ID][r.g.Name]; there > 0 {
		c.parts[1] = crowding(there, r.g.Count)
		c.score = (c.parts[0] + c.parts[1]) / 2
	}
	if c.index >= 0 {
		heap.Fix(&r.heap, c.index)
	} else {
		heap.Push(&r.heap, c)
	}
}

// avoided is a candidate's score where it is the node to be avoided.
func (r *ranking) avoided(c *candidate) float64 {
	n := 2.0
	if c.parts[1] != 0 {
		n = 3
	}
	return (c.parts[0] + c.parts[1] + penalty) / n
}

// occupy counts delta allocations of the group on a node.
func (r *ranking) occupy(n *fleet.Node, delta int) {
	groups := r.tenants.byNode[n.ID]
	if groups == nil {
		groups = map[string]int{}
		r.tenants.byNode[n.ID] = groups
	}
	groups[r.g.Name] += delta
	for _, d := range r.rules {
		d.count(n, r.g.Name, delta)
	}
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

// roomAfter reports whether a placement would find room on the node of the
// allocation that it replaces once that has ended, and if so takes the room.
func (r *ranking) roomAfter(prev *fleet.Alloc) bool {
	n, ok := r.cluster.Node(prev.NodeID)
	if !ok || !n.Schedulable() || !prev.OccupiesNode() || r.where.check(n) != "" || r.broken(n) != "" {
		return false
	}
	planned := r.tenants.planned[n.ID].Sub(prev.AllocatedResources).Add(r.ask)
	if r.cluster.Used(n.ID).Add(planned).Exceeds(n.Free()) != "" {
		return false
	}
	r.tenants.planned[n.ID] = planned
	r.occupy(n, 1)
	return true
}

func (r *ranking) filtered(n *fleet.Node, why string) {
	r.metric.NodesFiltered++
	r.metric.ConstraintFiltered = plus(r.metric.ConstraintFiltered, why)
	if n.NodeClass != "" {
		r.metric.ClassFiltered = plus(r.metric.ClassFiltered, n.NodeClass)
	}
}

// choice is what an allocation shows of how its node was chosen.
func (r *ranking) choice(c *candidate, avoid fleet.NodeID) choice {
	scores := map[string]float64{scoreFit: c.parts[0]}
	score := c.score
	if c.parts[1] != 0 {
		scores[scoreCrowding] = c.parts[1]
	}
	if c.node.ID == avoid {
		scores[scorePenalty] = penalty
		score = r.avoided(c)
	}
	return choice{node: c.node, score: score, metric: &fleet.AllocMetric{
		NodesEvaluated: r.metric.NodesEvaluated, NodesFiltered: r.metric.NodesFiltered, NodesExhausted: r.metric.NodesExhausted,
		ScoreMetaData: []fleet.NodeScore{{NodeID: c.node.ID, Scores: scores, NormScore: score}},
	}}
}

// failure is why nothing could be placed.
func (r *ranking) failure() *fleet.AllocMetric {
	m := r.metric
	m.NodesAvailable = maps.Clone(m.NodesAvailable)
	return &m
}

func plus(m map[string]int, key string) map[string]int {
	if m == nil {
		m = map[string]int{}
	}
	m[key]++
	return m
}

// candidates is a heap of nodes with room, the best on top.
type candidates []*candidate

func (h candidates) Len() int { return len(h) }

func (h candidates) Less(i, j int) bool {
	if h[i].score != h[j].score {
		return h[i].score > h[j].score
	}
	return h[i].order < h[j].order
}

func (h candidates) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *candidates) Push(x any) {
	c := x.(*candidate)
	c.index = len(*h)
	*h = append(*h, c)
}

func (h *candidates) Pop() any {
	old := *h
	c := old[len(old)-1]
	c.index = -1
	*h = old[:len(old)-1]
	return c
}
