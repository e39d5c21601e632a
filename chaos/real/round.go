package real

import (
	"math/rand/v2"
	"slices"
	"time"

	"skerry/chaos/schedule"
)

// Bounds of one round.
const (
	cutShortest = 300 * time.Millisecond
	cutLongest  = 5 * time.Second
	// voidBelow is the number of rounds from which on every kind of fault has to have had
	// an effect.
	voidBelow = 20
	// hubCutTime is the duration of a hub's cut.
	hubCutTime = time.Second
)

// Kinds of fault that a round draws while edges are cut off: faults of edges, and of hubs.
var (
	roundEdgeKinds = []schedule.Kind{schedule.EdgeKill, schedule.EdgeRestart, schedule.PowerCut}
	roundHubKinds  = []schedule.Kind{schedule.HubKill, schedule.LeaderKill, schedule.MinorityCut}
	roundKinds     = slices.Concat([]schedule.Kind{schedule.LinkCut}, roundEdgeKinds, roundHubKinds)
)

// drawRound draws the faults of one round from the seed and its number. Some edges are always cut
// off. Halfway an edge and a hub may get a fault, too; a majority of hubs stays.
func (s *campaignRun) drawRound(number int) schedule.Schedule {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(number)))
	t := s.topology
	away := cutShortest + time.Duration(rng.Int64N(int64(cutLongest-cutShortest)))
	drawn := schedule.Schedule{Seed: s.phaseSeed(number), Length: away, Topology: t}
	cut := rng.Perm(s.Edges)[:1+rng.IntN(s.Edges)]
	for _, i := range cut {
		drawn.Faults = append(drawn.Faults, schedule.Fault{Kind: schedule.LinkCut, For: away, Targets: []string{t.Edges[i].Name}})
	}
	if rng.IntN(3) > 0 {
		f := schedule.Fault{Kind: roundEdgeKinds[rng.IntN(len(roundEdgeKinds))], At: away / 2, Targets: []string{t.Edges[rng.IntN(s.Edges)].Name}}
		if f.Kind == schedule.PowerCut { // the machine has to boot while it is cut off
			f.Targets = []string{t.Edges[cut[0]].Name}
		}
		drawn.Faults = append(drawn.Faults, f)
	}
	if s.Hubs >= 3 && rng.IntN(3) > 0 {
		f := schedule.Fault{Kind: roundHubKinds[rng.IntN(len(roundHubKinds))], At: away / 2, For: away / 2, Targets: []string{t.Hubs[rng.IntN(s.Hubs)]}}
		switch f.Kind {
		case schedule.LeaderKill:
			f.Targets = nil
		case schedule.MinorityCut:
			f.For = hubCutTime
		}
		drawn.Faults = append(drawn.Faults, f)
	}
	return drawn
}
