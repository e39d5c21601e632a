package scheduler

import (
	"maps"
	"math"

	"skerry/fleet"
)

// The parts of a node's score that are its own. Its score is the mean of those that
// count, and of the spread and the penalty where there are such.
const (
	partFit = iota
	partAntiAffinity
	partAffinity
	partDevices
	partCount
)

// fitScale is the score of a perfect fit, before it is brought to 1.
const fitScale = 18

// binpackScore scores how well resources in use fill a node: 1 where cpu and memory are
// used up, 0 where the node is empty. It is 20 - 10^(cpu free) - 10^(memory
// free), free being the fraction that is left, over 18.
func binpackScore(used, free fleet.Resources) float64 {
	score := 20 - math.Pow(10, freeShare(used.CPU, free.CPU)) - math.Pow(10, freeShare(used.MemoryMB, free.MemoryMB))
	return min(max(score, 0), fitScale) / fitScale
}

func freeShare(used, of int) float64 {
	if of <= 0 {
		return 0
	}
	return 1 - float64(used)/float64(of)
}

// antiAffinityScore scores that a node has allocations of the group already; count is
// what the group wants.
func antiAffinityScore(there, count int) float64 {
	return -float64(there+1) / float64(max(count, 1))
}

// reschedulePenalty scores the node that an allocation failed on before.
const reschedulePenalty = -1.0

// Names of scores, as people know them.
const (
	scoreFit          = "binpack"
	scoreAntiAffinity = "job-anti-affinity"
	scoreAffinity     = "node-affinity"
	scoreDevices      = "devices"
	scoreSpread       = "allocation-spread"
	scorePenalty      = "node-reschedule-penalty"
)

// placementMetric is what an allocation shows of how its node was chosen: for the first of a
// group also others that could have been, and why the rest could not.
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

// nodeScore is a candidate's score with what it is made of.
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
