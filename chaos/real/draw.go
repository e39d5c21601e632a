package real

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"skerry/chaos/schedule"
)

// Lengths of a campaign's parts: faults, then quiet, again and again.
const (
	phaseLength    = 150 * time.Second
	minPhaseLength = 60 * time.Second
	quietShare     = 15 * time.Second // part of the remaining time that is kept for becoming quiet
	// squeeze is the factor by which drawn schedules are made shorter.
	squeeze = 4
	// faultsPerPhase is the number of faults of a phase of full length, and
	// kindsPerPhase the number of their kinds.
	faultsPerPhase = 26
	leastPerPhase  = 10 // number of faults of the shortest phase
	kindsPerPhase  = 14
	// shortestJump is the smallest jump of a clock: a smaller one looks like the age of a
	// journal's row.
	shortestJump = time.Minute
)

// phaseSeed returns the seed of the campaign's schedule with that number.
func (s *campaignRun) phaseSeed(number int) uint64 { return s.Seed*1000 + uint64(number) }

// drawPhaseFaults draws the faults of one phase, from the possible kinds that had the fewest so far, with times
// shortened to the phase's length. It drops faults that could not be judged, and adds drains.
func (s *campaignRun) drawPhaseFaults(number int, length time.Duration) schedule.Schedule {
	seed := s.phaseSeed(number)
	rng := rand.New(rand.NewPCG(seed, 0x5702))
	kinds := slices.DeleteFunc(s.possibleKinds(), func(k schedule.Kind) bool { return k == schedule.Drain }) // addDrains adds these
	rng.Shuffle(len(kinds), func(i, k int) { kinds[i], kinds[k] = kinds[k], kinds[i] })
	slices.SortStableFunc(kinds, func(a, b schedule.Kind) int { return cmp.Compare(s.timesPlayedIfHit(a), s.timesPlayedIfHit(b)) })
	kinds = kinds[:min(len(kinds), kindsPerPhase)]
	drawn := schedule.Draw(seed, schedule.Shape{
		Hubs: s.Hubs, Edges: s.Edges, Length: length * squeeze, Jobs: 1, Operations: -1, Kinds: kinds, Clock: schedule.Real,
		FaultsPerHour: int(max(faultsPerPhase*time.Hour/(phaseLength*squeeze), leastPerPhase*time.Hour/(length*squeeze))),
	})
	squeezed := schedule.Schedule{Seed: seed, Length: length, Topology: s.topology}
	for _, f := range drawn.Faults {
		f.Targets = s.resolveTargets(drawn.Topology, f)
		squeezed.Faults = append(squeezed.Faults, shorter(f))
	}
	squeezed.Faults = s.keepJudgeableFaults(squeezed.Faults)
	addDrains(&squeezed)
	return squeezed
}

// resolveTargets returns the targets of a fault with the names of edges in place of sites, and
// without edges whose clocks cannot be moved if the kind needs that.
func (s *campaignRun) resolveTargets(t schedule.Topology, f schedule.Fault) []string {
	info, _ := f.Kind.Info()
	if !info.At.Named() {
		return nil
	}
	targets := slices.Concat(t.EdgesOf(f), t.HubsOf(f))
	if slices.Contains(needClocks, f.Kind) {
		targets = slices.DeleteFunc(targets, func(name string) bool { return !s.hasMovableClock(name) })
	}
	return targets
}

// shorter returns the fault with its times divided by squeeze.
func shorter(f schedule.Fault) schedule.Fault {
	f.At /= squeeze
	f.For /= squeeze
	f.Params.Phases.Shortest /= squeeze
	f.Params.Phases.Longest /= squeeze
	f.Params.Off /= squeeze
	f.Params.On /= squeeze
	f.Params.Job = "" // all jobs crash: the drawn job does not exist here
	if f.Kind == schedule.Restore {
		f.Params.Age = f.At // the copy is made at the beginning, before the jobs change
	}
	if j := f.Params.Jump; j != 0 && j.Abs() < shortestJump {
		f.Params.Jump = shortestJump * (j / j.Abs()) // its direction
	}
	return f
}

// keepJudgeableFaults returns the faults, in order of time, without those that make another one
// impossible to judge (isUnjudgeablePair), and without those whose targets were all removed. Of a
// pair with a clone the clone stays, since clones are rare.
func (s *campaignRun) keepJudgeableFaults(faults []schedule.Fault) []schedule.Fault {
	slices.SortStableFunc(faults, func(a, b schedule.Fault) int { return cmp.Compare(rank(a), rank(b)) })
	var kept []schedule.Fault
	for _, f := range faults {
		info, _ := f.Kind.Info()
		if info.At.Named() && len(f.Targets) == 0 {
			continue
		}
		if !slices.ContainsFunc(kept, func(k schedule.Fault) bool { return s.isUnjudgeablePair(k, f) || s.isUnjudgeablePair(f, k) }) {
			kept = append(kept, f)
		}
	}
	slices.SortStableFunc(kept, func(a, b schedule.Fault) int { return cmp.Compare(a.At, b.At) })
	return kept
}

// rank orders clones before all other faults.
func rank(f schedule.Fault) int {
	if f.Kind == schedule.Clone {
		return 0
	}
	return 1
}

// margin is the time around a fault within which another one counts as simultaneous.
const margin = 10 * time.Second

// isUnjudgeablePair reports whether fault b makes a impossible to judge. With a fault of hubs the
// cluster may take a clone for the first machine. While tasks crash, a damaged journal loses starts
// that nobody observed.
func (s *campaignRun) isUnjudgeablePair(a, b schedule.Fault) bool {
	if a.At > b.At+b.For+margin || b.At > a.At+a.For+margin {
		return false
	}
	switch a.Kind {
	case schedule.Clone:
		info, _ := b.Kind.Info()
		return info.At != schedule.AtEdge && info.At != schedule.AtEdges || b.Kind == schedule.Clone || sharesTarget(a, b)
	case schedule.BitFlip, schedule.TornPage:
		return (b.Kind == schedule.CrashLoop || b.Kind == schedule.DriverDead) && sharesTarget(a, b)
	}
	return false
}

// sharesTarget reports whether two faults name the same target, or one of them names none.
func sharesTarget(a, b schedule.Fault) bool {
	return len(a.Targets) == 0 || len(b.Targets) == 0 ||
		slices.ContainsFunc(a.Targets, func(t string) bool { return slices.Contains(b.Targets, t) })
}
