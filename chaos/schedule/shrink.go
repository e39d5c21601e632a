package schedule

import (
	"context"
	"slices"

	"skerry/fleet"
)

// Shrinking configures Shrink.
type Shrinking struct {
	// Fails runs a schedule and reports whether it fails as the first one did. It is
	// called many times, but never concurrently.
	Fails func(ctx context.Context, s Schedule) bool
	// Runs is the maximum number of calls of Fails; 0: 200.
	Runs int
	// Tries is how often a schedule has to pass before it counts as passing: failures may
	// depend on chance. 0: 2.
	Tries int
}

// Shrink returns the shortest schedule that it found to fail, after at most how.Runs runs, or when
// ctx is done. It is s itself if no shorter one failed, and valid if s is. The method is delta
// debugging (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002).
func Shrink(ctx context.Context, s Schedule, how Shrinking) Schedule {
	how.Runs = orElse(how.Runs, 200)
	how.Tries = orElse(how.Tries, 2)
	k := &shrinker{Shrinking: how, best: s, seen: map[string]bool{s.String(): true}}
	for k.hasRunsLeft(ctx) {
		before := k.best.String()
		for _, pass := range []func(context.Context){
			k.shortenRun, k.fewerItems, k.tryOneHub, k.tryPlainEdges, k.closeIdleGaps, k.smallerFaults, k.smallerJobs, k.shortenRun,
		} {
			pass(ctx)
		}
		if k.best.String() == before {
			break
		}
	}
	return k.best
}

// shrinker is the state of one Shrink: the shortest failing schedule so far, and the count of runs.
type shrinker struct {
	Shrinking
	best Schedule
	runs int
	seen map[string]bool // the schedules that were tried, as texts
}

// hasRunsLeft reports whether another run is allowed and the context is not done.
func (k *shrinker) hasRunsLeft(ctx context.Context) bool { return k.runs < k.Runs && ctx.Err() == nil }

// tryCandidate runs a schedule up to Tries times. If a run fails, the schedule becomes k.best and
// the result is true. It skips an invalid schedule and one that was tried before.
func (k *shrinker) tryCandidate(ctx context.Context, s Schedule) bool {
	s = dropDanglingParts(s)
	text := s.String()
	if k.seen[text] || len(s.Validate()) > 0 {
		return false
	}
	k.seen[text] = true
	for range k.Tries {
		if !k.hasRunsLeft(ctx) {
			return false
		}
		k.runs++
		if k.Fails(ctx, s) {
			k.best = s
			return true
		}
	}
	return false
}

// itemLists are the lists of a schedule whose items can be left out; without drops items i to j-1.
var itemLists = []struct {
	length  func(s Schedule) int
	without func(s Schedule, i, j int) Schedule
}{
	{func(s Schedule) int { return len(s.Faults) }, func(s Schedule, i, j int) Schedule { s.Faults = without(s.Faults, i, j); return s }},
	{func(s Schedule) int { return len(s.Jobs) }, func(s Schedule, i, j int) Schedule { s.Jobs = without(s.Jobs, i, j); return s }},
	{func(s Schedule) int { return min(s.Operations, 1) }, func(s Schedule, _, _ int) Schedule { s.Operations = 0; return s }},
	{func(s Schedule) int { return min(s.Secrets, 1) }, func(s Schedule, _, _ int) Schedule { s.Secrets = 0; return s }},
	{func(s Schedule) int { return map[bool]int{true: 1}[s.Access] }, func(s Schedule, _, _ int) Schedule { s.Access = false; return s }},
	{func(s Schedule) int { return len(s.Steps) }, func(s Schedule, i, j int) Schedule { s.Steps = without(s.Steps, i, j); return s }},
	{func(s Schedule) int { return len(s.Topology.Edges) }, func(s Schedule, i, j int) Schedule {
		return s.withEdges(without(s.Topology.Edges, i, j))
	}},
	{func(s Schedule) int { return len(s.Expect) }, func(s Schedule, i, j int) Schedule { s.Expect = without(s.Expect, i, j); return s }},
}

func without[S ~[]T, T any](items S, i, j int) S { return slices.Delete(slices.Clone(items), i, j) }

// fewerItems tries to drop items from each list: all, then halves, quarters, down to single ones.
func (k *shrinker) fewerItems(ctx context.Context) {
	for _, l := range itemLists {
		for size := l.length(k.best); size > 0 && k.hasRunsLeft(ctx); size /= 2 {
			for i := 0; i < l.length(k.best) && k.hasRunsLeft(ctx); {
				if !k.tryCandidate(ctx, l.without(k.best, i, min(l.length(k.best), i+size))) {
					i += size
				}
			}
		}
	}
}

// tryOneHub tries the schedule with only its first hub.
func (k *shrinker) tryOneHub(ctx context.Context) {
	if s := k.best; len(s.Topology.Hubs) > 1 {
		s.Topology.Hubs = s.Topology.Hubs[:1]
		k.tryCandidate(ctx, s)
	}
}

// tryPlainEdges tries the schedule with default edges: no sites, pools, datacenters or slow links.
func (k *shrinker) tryPlainEdges(ctx context.Context) {
	s := k.best
	s.Topology = NewTopology(len(s.Topology.Hubs), len(s.Topology.Edges))
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		s.Jobs[i].Site, s.Jobs[i].Pool, s.Jobs[i].Datacenters = "", "", nil
	}
	k.tryCandidate(ctx, s)
}

// withEdges returns the schedule with only these of its edges. They get new consecutive names,
// also in faults and expectations; names of dropped edges become removedEdge there.
func (s Schedule) withEdges(edges []Edge) Schedule {
	names := map[string]string{}
	topology := s.Topology
	topology.Edges = nil
	for _, e := range edges {
		topology = topology.With(1, e)
		names[e.Name] = topology.Edges[len(topology.Edges)-1].Name
	}
	for _, e := range s.Topology.Edges {
		if names[e.Name] == "" {
			names[e.Name] = removedEdge
		}
	}
	s.Topology = topology
	s.Faults = slices.Clone(s.Faults)
	for i := range s.Faults {
		s.Faults[i].Targets = slices.Clone(s.Faults[i].Targets)
		for t, name := range s.Faults[i].Targets {
			s.Faults[i].Targets[t] = orElse(names[name], name)
		}
	}
	s.Expect = slices.Clone(s.Expect)
	for i := range s.Expect {
		s.Expect[i].Name = orElse(names[s.Expect[i].Name], s.Expect[i].Name)
	}
	return s
}

// removedEdge stands for an edge that was dropped, until dropDanglingParts removes the references to it.
const removedEdge = "gone"

// dropDanglingParts returns the schedule without references to dropped items: targets, faults
// without targets, pools without edges, expectations that are no longer valid, and steps of
// absent jobs or that the job's state does not allow.
func dropDanglingParts(s Schedule) Schedule {
	s.Faults = slices.Clone(s.Faults)
	sites := s.Topology.Sites()
	for i, f := range s.Faults {
		s.Faults[i].Targets = slices.DeleteFunc(slices.Clone(f.Targets), func(name string) bool {
			_, edge := s.Topology.Edge(name)
			return !edge && !slices.Contains(s.Topology.Hubs, name) && !slices.Contains(sites, name) &&
				name != TargetLeader && name != TargetEdges
		})
		if _, known := s.Job(f.Params.Job); !known {
			s.Faults[i].Params.Job = ""
		}
	}
	s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool {
		info, _ := f.Kind.Info()
		return info.At.Named() && len(f.Targets) == 0
	})
	s.Topology.Pools = slices.DeleteFunc(slices.Clone(s.Topology.Pools), func(p Pool) bool {
		return !slices.ContainsFunc(s.Topology.Edges, func(e Edge) bool { return e.Pool == p.Name })
	})
	s.Steps = applicableSteps(s)
	s.Expect = slices.DeleteFunc(slices.Clone(s.Expect), func(e Expectation) bool {
		var ps Problems
		e.validateExpectation(&ps, 0, s)
		return len(ps) > 0
	})
	return s
}

// applicableSteps returns the steps whose job exists, has started, and is in a state that allows them.
func applicableSteps(s Schedule) []Step {
	stands := map[fleet.JobID]string{}
	for _, j := range s.Jobs {
		stands[j.ID] = jobRuns
	}
	return slices.DeleteFunc(slices.Clone(s.Steps), func(step Step) bool {
		j, known := s.Job(step.Job)
		if !known || step.At <= j.Start || step.At > s.Length {
			return true
		}
		var ps Problems
		after := step.checkTransition(&ps, 0, stands[step.Job])
		if len(ps) > 0 {
			return true
		}
		stands[step.Job] = after
		return false
	})
}
