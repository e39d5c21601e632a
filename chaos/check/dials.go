package check

import (
	"fmt"
	"slices"
	"time"
)

// dials compares when edges that lost their link together dial again. With full jitter their
// pauses have nothing in common after the first tries; without it each pause is the same for all.
type dials struct{ cuts []*cut }

// cut is a loss of the link that several edges had at the same time.
type cut struct {
	began time.Duration
	edges map[string][]time.Duration // when each began to dial since
	over  bool
}

const (
	// together is within which time edges lose their link for it to count as one cut,
	// and cutEdges how many it has to be.
	together = time.Second
	cutEdges = 5
	// keptDials is how many rounds of an edge are looked at, and keptCuts how many
	// cuts at a time.
	keptDials = 12
	keptCuts  = 8
	// pausesInStep is how many pauses in a row have to be the same for all edges
	// before they count as in step. Five pauses that are uniform within their bound
	// lie within a twentieth of it once in 30,000 times, three such in a row never.
	pausesInStep = 3
	inStep       = 0.05
)

func newDials() checker {
	t := &dials{}
	return checker{state: t, fault: t.recordSeveringFault, dial: t.recordDial, finish: t.judgeOpenCuts}
}

func (t *dials) recordSeveringFault(s *runContext, f *Fault) {
	switch {
	case !slices.Contains(f.Effects, Severs):
	case f.End:
		t.judgeHealedCuts(s, f)
	default:
		t.recordSeveredEdges(s, f)
	}
}

func (t *dials) recordDial(s *runContext, d *Dial) {
	for _, c := range t.cuts {
		if times, in := c.edges[d.Edge]; in && !c.over && len(times) < keptDials {
			c.edges[d.Edge] = append(times, s.now)
		}
	}
}

// recordSeveredEdges adds the edges that a fault severs to a cut that has just begun, or begins
// one.
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

// judgeHealedCuts judges a cut that begins to heal: from then on edges find hubs.
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

// judgeDialPauses compares the pauses between the edges' rounds, the first with the first and
// so on.
func (c *cut) judgeDialPauses(s *runContext) {
	pauses := map[string][]time.Duration{}
	for name, times := range c.edges {
		if s.isClonedMachine(name) || s.faults.hasFaultSince(s.now, c.began, name, Halts, Chokes, Impairs) {
			continue // its pauses are not its own
		}
		for i := 1; i < len(times); i++ {
			pauses[name] = append(pauses[name], times[i]-times[i-1])
		}
	}
	row := 0
	var evidence []string
	for i := range keptDials {
		line, apart, enough := compared(pauses, i)
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

// compared says whether the edges' pauses of one number lie apart; enough is false
// where too few edges have one.
func compared(pauses map[string][]time.Duration, i int) (line string, apart, enough bool) {
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

func (t *dials) judgeOpenCuts(s *runContext, _ *FleetSnapshot) {
	for _, c := range t.cuts {
		c.judgeDialPauses(s)
	}
	t.cuts = nil
}
