package check

import (
	"fmt"
	"slices"
	"time"
)

// dials compares the times at which edges that lost their link together dial again. With full jitter their
// pauses differ after the first tries. Without jitter each pause is the same for all edges.
type dials struct{ cuts []*cut }

// cut is a loss of the link that several edges had at the same time.
type cut struct {
	began time.Duration
	edges map[string][]time.Duration // the times of each edge's rounds of dialling since
	over  bool
}

const (
	// together is the time within which faults count as one cut, and cutEdges the
	// number of edges that a cut needs to be judged.
	together = time.Second
	cutEdges = 5
	// keptDials bounds the rounds of an edge that are compared, and keptCuts the cuts
	// that are kept at a time.
	keptDials = 12
	keptCuts  = 8
	// pausesInStep is the number of pauses in a row that have to be the same for all
	// edges, within inStep of the longest, to be a violation. Five uniform pauses are
	// that close once in 30,000 times; three times in a row is practically impossible.
	pausesInStep = 3
	inStep       = 0.05
)

// newDials returns the checker of the pauses between attempts to connect.
func newDials() checker {
	t := &dials{}
	return checker{state: t, fault: t.recordSeveringFault, dial: t.recordDial, finish: t.judgeOpenCuts}
}

// recordSeveringFault starts a cut, or adds to one, when a fault begins to sever links, and judges the cut when
// the fault ends.
func (t *dials) recordSeveringFault(s *runContext, f *Fault) {
	switch {
	case !slices.Contains(f.Effects, Severs):
	case f.End:
		t.judgeHealedCuts(s, f)
	default:
		t.recordSeveredEdges(s, f)
	}
}

// recordDial adds the time of an edge's round of dialling to each open cut that the edge is in.
func (t *dials) recordDial(s *runContext, d *Dial) {
	for _, c := range t.cuts {
		if times, in := c.edges[d.Edge]; in && !c.over && len(times) < keptDials {
			c.edges[d.Edge] = append(times, s.now)
		}
	}
}

// recordSeveredEdges adds the edges that a fault severs to the newest cut if that is younger than together, else to a
// new one. A fault without targets severs all edges.
func (t *dials) recordSeveredEdges(s *runContext, f *Fault) {
	targets := f.Targets
	if len(targets) == 0 {
		for name := range s.machines.by {
			targets = append(targets, name)
		}
	}
	var c *cut
	if n := len(t.cuts); n > 0 && !t.cuts[n-1].over && s.now-t.cuts[n-1].began <= together {
		c = t.cuts[n-1]
	} else {
		c = &cut{began: s.now, edges: map[string][]time.Duration{}}
		t.cuts = append(t.cuts, c)
	}
	for _, name := range targets {
		if _, edge := s.machines.by[name]; edge {
			c.edges[name] = nil
		}
	}
	if len(t.cuts) > keptCuts {
		t.cuts = t.cuts[1:]
	}
}

// judgeHealedCuts judges and removes the cuts that have an edge among a fault's targets, when the fault ends.
// After that the edges find hubs again.
func (t *dials) judgeHealedCuts(s *runContext, f *Fault) {
	for _, c := range t.cuts {
		touched := len(f.Targets) == 0 || slices.ContainsFunc(f.Targets, func(name string) bool { _, in := c.edges[name]; return in })
		if !c.over && touched {
			c.over = true
			c.judgeDialPauses(s)
		}
	}
	t.cuts = slices.DeleteFunc(t.cuts, func(c *cut) bool { return c.over })
}

// judgeDialPauses compares the pauses between the edges' rounds: the first pauses of all edges, the second, and
// so on. It reports pausesInStep of them in a row that are the same for all.
func (c *cut) judgeDialPauses(s *runContext) {
	pauses := map[string][]time.Duration{}
	for name, times := range c.edges {
		if s.isClonedMachine(name) || s.faults.hasFaultSince(s.now, c.began, name, Halts, Chokes, Impairs) {
			continue // a fault changes the pauses of this edge
		}
		for i := 1; i < len(times); i++ {
			pauses[name] = append(pauses[name], times[i]-times[i-1])
		}
	}
	row := 0
	var evidence []string
	for i := range keptDials {
		line, apart, enough := comparePauses(pauses, i)
		if !enough {
			return
		}
		s.countJudgement(Jitter)
		evidence = append(evidence, line)
		if row++; apart {
			row, evidence = 0, nil
		}
		if row >= pausesInStep {
			s.reportWithEvidence(Jitter, "", evidence, "edges that lost their link together at %s try again in step: %d pauses are the same for all", c.began, row)
			return
		}
	}
}

// comparePauses compares the pauses with index i of all edges. line shows them. apart is true if they differ by more
// than inStep. enough is false if fewer than cutEdges edges have one.
func comparePauses(pauses map[string][]time.Duration, i int) (line string, apart, enough bool) {
	var all []time.Duration
	line = fmt.Sprintf("pause %d:", i+1)
	for _, name := range sorted(pauses) {
		if i < len(pauses[name]) {
			all = append(all, pauses[name][i])
			line += fmt.Sprintf(" %s %s", name, pauses[name][i].Round(time.Millisecond))
		}
	}
	if len(all) < cutEdges {
		return "", false, false
	}
	least, most := slices.Min(all), slices.Max(all)
	return line, float64(most-least) > inStep*float64(most), true
}

// judgeOpenCuts judges the cuts that have not healed at the run's end.
func (t *dials) judgeOpenCuts(s *runContext, _ *FleetSnapshot) {
	for _, c := range t.cuts {
		c.judgeDialPauses(s)
	}
	t.cuts = nil
}
