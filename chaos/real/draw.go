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
	quietShare     = 15 * time.Second // of what is left of a run, for its last quiet
	// squeeze is by how much drawn schedules are made shorter: hours of theirs are
	// minutes here.
	squeeze = 4
	// faultsPerPhase is how many are drawn for a phase of full length, and
	// kindsPerPhase of how many kinds.
	faultsPerPhase = 26
	leastPerPhase  = 10 // also where it is short
	kindsPerPhase  = 14
	// shortestJump is by how much a clock jumps at least: less is not told from the
	// age of what is journaled.
	shortestJump = time.Minute
)

// phaseSeed is the seed of the schedule of a number.
func (s *campaignRun) phaseSeed(number int) uint64 { return s.Seed*1000 + uint64(number) }

// drawPhaseFaults draws the faults of one phase: of those kinds that hit least so far.
func (s *campaignRun) drawPhaseFaults(number int, length time.Duration) schedule.Schedule {
	seed := s.phaseSeed(number)
	rng := rand.New(rand.NewPCG(seed, 0x5702))
	kinds := slices.DeleteFunc(s.possibleKinds(), func(k schedule.Kind) bool { return k == schedule.Drain }) // addDrains does
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

// resolveTargets names edges instead of sites, since all of these edges are at one. Clocks
// are moved where they can be.
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

// shorter is the fault in the campaign's own time.
func shorter(f schedule.Fault) schedule.Fault {
	f.At /= squeeze
	f.For /= squeeze
	f.Params.Phases.Shortest /= squeeze
	f.Params.Phases.Longest /= squeeze
	f.Params.Off /= squeeze
	f.Params.On /= squeeze
	f.Params.Job = "" // whatever runs there crashes
	if f.Kind == schedule.Restore {
		f.Params.Age = f.At // the copy is made before the jobs change
	}
	if j := f.Params.Jump; j != 0 && j.Abs() < shortestJump {
		f.Params.Jump = shortestJump * (j / j.Abs()) // its direction
	}
	return f
}

// keepJudgeableFaults leaves out what nobody could judge: a clone while hubs are in trouble, for
// then it may be the first machine that is taken for the copy; and damage of a
// journal while its tasks crash all the time, for then starts are lost that were
// never seen. Clones are rare, and stay. Names that are left with no target go, too.
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

func rank(f schedule.Fault) int {
	if f.Kind == schedule.Clone {
		return 0
	}
	return 1
}

// margin is how long around a fault others still count as being beside it.
const margin = 10 * time.Second

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

func sharesTarget(a, b schedule.Fault) bool {
	return len(a.Targets) == 0 || len(b.Targets) == 0 ||
		slices.ContainsFunc(a.Targets, func(t string) bool { return slices.Contains(b.Targets, t) })
}
