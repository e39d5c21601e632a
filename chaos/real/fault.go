package real

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
)

// platform is the fleet of a campaign, as its faults see it.
type platform struct{ s *campaignRun }

// realEffects are those of kinds that do more to real processes than to simulated ones.
var realEffects = map[schedule.Kind][]check.Effect{
	schedule.Flapping:  {check.Severs},
	schedule.OfflineOn: {check.Severs},
	schedule.DiskFull:  {check.Chokes, check.Halts},
}

// lateEvidence is how long a fault is waited for to show that it hit, when it is over.
const lateEvidence = 5 * time.Second

// healBound is how long mending a fault may take: a certificate has to end meanwhile.
const healBound = 4 * time.Minute

// newFaults is what brings the faults of a schedule about.
func (s *campaignRun) newFaults(seed uint64) *engine.Faults {
	p := platform{s}
	return &engine.Faults{
		Platform: p, Users: s.users,
		Topology: s.topology, Effects: realEffects, Targets: s.targetNames, Seed: seed, HealBound: healBound,
		AwaitEvidence: awaitHits, Observe: s.watch.judgeAndRecord, Began: s.recordFaultBegin, Ended: s.recordFaultEnd,
	}
}

func awaitHits(ctx context.Context, _ schedule.Fault, a engine.Active) {
	for end := time.Now().Add(lateEvidence); time.Now().Before(end); {
		if hits, _ := a.Evidence(); hits > 0 || !engine.Pause(ctx, lateEvidence/20) {
			return
		}
	}
}

// targetNames are the members that a fault is on. Who leads when it begins is not asked: it
// may be any hub.
func (s *campaignRun) targetNames(f schedule.Fault) []string {
	info, _ := f.Kind.Info()
	switch {
	case info.At == schedule.AtEdges:
		return nil
	case info.At == schedule.AtHubs || info.At == schedule.AtLeader || len(f.Targets) == 1 && f.Targets[0] == schedule.TargetLeader:
		return s.topology.Hubs
	}
	return slices.Concat(s.topology.EdgesOf(f), s.topology.HubsOf(f))
}

func (s *campaignRun) recordFaultBegin(f schedule.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.played[f.Kind]++
	if s.expect != nil {
		s.expect.CountFaultBegin()
	}
}

func (s *campaignRun) recordFaultEnd(f schedule.Fault, over time.Time, hits uint64, what string) {
	if s.expect != nil {
		s.expect.CountFaultEnd(f, s.elapsedTime()-time.Since(over), hits)
	}
	s.mu.Lock()
	s.hits[f.Kind] += hits
	s.mu.Unlock()
	if f.Kind == schedule.Restore {
		s.watch.resumeAppliedEntries()
	}
	if what == "" {
		what = fmt.Sprintf("it hit %d times", hits)
	}
	s.watch.writeNote(fmt.Sprintf("%s %v: %s", f.Kind, f.Targets, what))
}

// What kinds need of the ground: disks of their own, clocks that can be moved, machines with a
// routing table and an address of their own.
var (
	needDisks  = []schedule.Kind{schedule.DiskFull, schedule.HubDiskFull, schedule.SlowDisk, schedule.PowerCut, schedule.TornPage}
	needClocks = []schedule.Kind{schedule.ClockJump, schedule.Clock1970}
)

// wantedKinds are the kinds that the campaign shall have; nil: all.
func (s *campaignRun) wantedKinds() []schedule.Kind {
	switch {
	case s.Scenario != nil:
		kinds := []schedule.Kind{} // of a scenario without faults: none
		for _, f := range s.Scenario.Faults {
			kinds = append(kinds, f.Kind)
		}
		return kinds
	case s.Rounds > 0:
		return roundKinds
	}
	return s.Kinds
}

// possibleKinds are the kinds that the ground allows, of those that are wanted.
func (s *campaignRun) possibleKinds() []schedule.Kind {
	wanted := s.wantedKinds()
	return slices.DeleteFunc(schedule.Kinds(), func(k schedule.Kind) bool {
		info, _ := k.Info()
		unwanted := wanted != nil && !slices.Contains(wanted, k)
		cannot := !s.Disks && s.Rounds == 0 && slices.Contains(needDisks, k) || s.Clocked == "" && slices.Contains(needClocks, k) || s.space == nil && k == schedule.AddressChange
		few := s.Hubs < 3 && (k == schedule.MinorityCut || k == schedule.MajorityCut)
		return info.Clock&schedule.Real == 0 || unwanted || cannot || few
	})
}
