package scheduler

import (
	"skerry/fleet"
	"skerry/fleet/placement"
)

// anyValue is the target of all values without a target of their own.
const anyValue = "*"

// spreadScorer scores the distribution of a group over the values of one node attribute.
type spreadScorer struct {
	attribute string
	share     float64            // its weight as a share of the weights of all spreads
	targets   map[string]float64 // wanted number of allocations by value; nil: evenly
	counts    map[string]int     // number of allocations by value
}

// newSpreadScorers returns the scorers for the spreads of a group and its job.
func newSpreadScorers(job *fleet.Job, g *fleet.TaskGroup) []*spreadScorer {
	all := append(append([]fleet.Spread{}, job.Spreads...), g.Spreads...)
	sum := 0
	for _, s := range all {
		sum += s.Weight
	}
	var out []*spreadScorer
	for _, s := range all {
		out = append(out, &spreadScorer{
			attribute: s.Attribute, share: float64(s.Weight) / float64(max(sum, 1)),
			targets: spreadTargets(s, g.Count), counts: map[string]int{},
		})
	}
	return out
}

// spreadTargets converts percentages to numbers of allocations. The rest is the target of anyValue.
func spreadTargets(s fleet.Spread, count int) map[string]float64 {
	if len(s.SpreadTarget) == 0 {
		return nil
	}
	out, left := map[string]float64{}, float64(count)
	for _, t := range s.SpreadTarget {
		out[t.Value] = float64(t.Percent) / 100 * float64(count)
		left -= out[t.Value]
	}
	if _, named := out[anyValue]; !named && left > 1e-9 {
		out[anyValue] = left
	}
	return out
}

// boostForValue scores one more allocation on nodes with a value, from -1 to 1. has is false for nodes
// without the attribute.
func (s *spreadScorer) boostForValue(value string, has bool) float64 {
	switch {
	case !has:
		return -s.share
	case s.targets == nil:
		return s.share * evenBoost(s.counts, value)
	}
	want, ok := s.targets[value]
	there := s.counts[value]
	if !ok {
		want, there = s.targets[anyValue], s.countUntargeted()
	}
	if want <= 0 {
		return -s.share
	}
	return s.share * (want - float64(there+1)) / want
}

// countUntargeted counts the allocations at values that share the target anyValue.
func (s *spreadScorer) countUntargeted() int {
	n := 0
	for value, there := range s.counts {
		if _, named := s.targets[value]; !named {
			n += there
		}
	}
	return n
}

// evenBoost scores one more allocation at a value if all values should have the same number: relative to
// the smallest number among the values that have any. It is 0 while there are no allocations.
func evenBoost(counts map[string]int, value string) float64 {
	least, most := 0, 0
	for _, n := range counts {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
		most = max(most, n)
	}
	here := counts[value]
	switch {
	case most == 0:
		return 0
	case here != least:
		return max(-1, float64(least-here)/float64(least))
	case least == most:
		return -1
	}
	return min(1, float64(most-least)/float64(least))
}

// affinityScorer scores nodes by the affinities of a group.
type affinityScorer struct {
	conds   []placement.Condition
	weights []float64
	sum     float64 // of their absolute values
}

// newAffinityScorer compiles the affinities of a group, its job and its tasks; nil: there are none.
func newAffinityScorer(job *fleet.Job, g *fleet.TaskGroup) (*affinityScorer, error) {
	all := append(append([]fleet.Affinity{}, job.Affinities...), g.Affinities...)
	for _, t := range g.Tasks {
		all = append(all, t.Affinities...)
	}
	if len(all) == 0 {
		return nil, nil
	}
	l := &affinityScorer{}
	for _, a := range all {
		c, err := placement.Compile(a.Constraint())
		if err != nil {
			return nil, err
		}
		l.conds, l.weights = append(l.conds, c), append(l.weights, float64(a.Weight))
		l.sum += float64(max(a.Weight, -a.Weight))
	}
	return l, nil
}

// affinityScore returns the sum of the weights of the affinities that a node matches, divided by the sum of all
// absolute weights: from -1 to 1.
func (l *affinityScorer) affinityScore(n *fleet.Node) float64 {
	matched := 0.0
	for i, c := range l.conds {
		if c.Holds(n) {
			matched += l.weights[i]
		}
	}
	if l.sum == 0 {
		return 0
	}
	return matched / l.sum
}
