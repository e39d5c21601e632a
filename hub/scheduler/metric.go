package scheduler

import (
	"fmt"
	"maps"
	"slices"

	"skerry/fleet"
)

const (
	// othersShown is how many other candidates the metric of a placement lists. Only the first
	// othersShownTimes placements of a group list them, to keep log entries small.
	othersShown      = 4
	othersShownTimes = 3
)

// Names of scores in the API, as in Nomad.
const (
	scoreFit          = "binpack"
	scoreAntiAffinity = "job-anti-affinity"
	scoreAffinity     = "node-affinity"
	scoreDevices      = "devices"
	scoreSpread       = "allocation-spread"
	scorePenalty      = "node-reschedule-penalty"
)

// placementMetric returns the metric of a placement on a candidate. The first placements of a group also
// list other candidates, and why nodes were filtered or exhausted. avoided is the reschedule penalty, or
// 0.
func (r *ranking) placementMetric(c *candidate, score, avoided float64) *fleet.AllocMetric {
	m := &fleet.AllocMetric{
		NodesEvaluated: r.metric.NodesEvaluated, NodesFiltered: r.metric.NodesFiltered, NodesExhausted: r.metric.NodesExhausted,
		NodesInPool:   r.metric.NodesInPool,
		ScoreMetaData: make([]fleet.NodeScore, 1, 1+othersShown),
	}
	m.ScoreMetaData[0] = r.nodeScore(c, score, avoided)
	if r.shown++; r.shown > othersShownTimes {
		m.ScoreMetaData = m.ScoreMetaData[:1:1]
		return m
	}
	m.NodesAvailable = maps.Clone(r.metric.NodesAvailable)
	m.ClassFiltered, m.ConstraintFiltered = maps.Clone(r.metric.ClassFiltered), maps.Clone(r.metric.ConstraintFiltered)
	m.ClassExhausted, m.DimensionExhausted = maps.Clone(r.metric.ClassExhausted), maps.Clone(r.metric.DimensionExhausted)
	for _, l := range r.buckets {
		for _, other := range l.heap[:min(len(l.heap), othersShown+1)] {
			if other != c && len(m.ScoreMetaData) <= othersShown {
				m.ScoreMetaData = append(m.ScoreMetaData, r.nodeScore(other, other.scoreWithPart(r.spreadBoost(l)), 0))
			}
		}
	}
	return m
}

// nodeScore returns a candidate's score with its parts. avoided is the reschedule penalty, or 0.
func (r *ranking) nodeScore(c *candidate, score, avoided float64) fleet.NodeScore {
	scores := map[string]float64{scoreFit: c.parts[partFit]}
	if c.parts[partAntiAffinity] != 0 {
		scores[scoreAntiAffinity] = c.parts[partAntiAffinity]
	}
	if r.affinities != nil {
		scores[scoreAffinity] = c.parts[partAffinity]
	}
	if c.parts[partDevices] != 0 {
		scores[scoreDevices] = c.parts[partDevices]
	}
	if len(r.spreads) > 0 {
		scores[scoreSpread] = r.spreadBoost(c.bucket)
	}
	if avoided != 0 {
		scores[scorePenalty] = avoided
	}
	return fleet.NodeScore{NodeID: c.node.ID, Scores: scores, NormScore: score}
}

// rejectionsShown is for how many nodes a failure lists what they lack.
const rejectionsShown = 5

// recordRejection records why a node was rejected. It calls why only for nodes that will be shown.
func (r *ranking) recordRejection(n *fleet.Node, why func() string) {
	if len(r.metric.RejectedNodes) < rejectionsShown {
		r.metric.RejectedNodes = append(r.metric.RejectedNodes, fleet.NodeRejection{NodeID: n.ID, NodeName: n.Name, Why: why()})
	}
}

// recordExhausted counts a node that has too little of the resource short.
func (r *ranking) recordExhausted(n *fleet.Node, short string) {
	r.recordRejection(n, func() string { return r.describeShortage(n, short) })
	r.metric.NodesExhausted++
	r.metric.DimensionExhausted = incrementCapped(r.metric.DimensionExhausted, short)
	if n.NodeClass != "" {
		r.metric.ClassExhausted = incrementCapped(r.metric.ClassExhausted, n.NodeClass)
	}
}

// recordFiltered counts a node that does not suit; why is the constraint.
func (r *ranking) recordFiltered(n *fleet.Node, why string) {
	r.recordRejection(n, func() string { return describeUnmetConstraint(n, why) })
	r.metric.NodesFiltered++
	r.metric.ConstraintFiltered = incrementCapped(r.metric.ConstraintFiltered, why)
	if n.NodeClass != "" {
		r.metric.ClassFiltered = incrementCapped(r.metric.ClassFiltered, n.NodeClass)
	}
}

// failureMetric returns the metric of a placement that found no node.
func (r *ranking) failureMetric() *fleet.AllocMetric {
	m := r.metric
	m.NodesAvailable, m.RejectedNodes = maps.Clone(m.NodesAvailable), slices.Clone(m.RejectedNodes)
	m.NodePool = r.feasibility.job.NodePool
	m.NodesAway = r.countAwayNodesWithCapacity()
	if m.NodesExhausted > 0 {
		m.ResourcesExhausted = make(map[string]fleet.Resources, len(r.g.Tasks))
		for _, t := range r.g.Tasks {
			m.ResourcesExhausted[t.Name] = t.Resources.Resources
		}
	}
	return &m
}

// countAwayNodesWithCapacity counts the nodes that are away and would have capacity for the group.
func (r *ranking) countAwayNodesWithCapacity() int {
	count := 0
	for _, n := range r.awayNodes {
		_, _, short := r.exhaustedDimension(&candidate{node: n, used: r.cluster.Used(n.ID)})
		if short == "" && r.brokenDistinctRule(n) == "" {
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

// incrementCapped increments the count of key. If the map has countedApart keys already, a new key counts
// as allOthers.
func incrementCapped(m map[string]int, key string) map[string]int {
	if m == nil {
		m = map[string]int{}
	}
	if _, known := m[key]; !known && len(m) >= countedApart {
		key = allOthers
	}
	m[key]++
	return m
}

// placementFailureText describes for people why no node was found.
func placementFailureText(m *fleet.AllocMetric) string {
	switch {
	case m.NodesEvaluated == 0 && m.NodesInPool == 0:
		return "no node of the pool is ready"
	case m.NodesEvaluated == 0:
		return fmt.Sprintf("none of the %d ready nodes of the pool is in the job's datacenters", m.NodesInPool)
	}
	text := fmt.Sprintf("of %d nodes %d do not suit and %d are full", m.NodesEvaluated, m.NodesFiltered, m.NodesExhausted)
	if m.NodesAway > 0 {
		text += fmt.Sprintf("; %d with a place for it are away", m.NodesAway)
	}
	return text
}
