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

// platform applies faults to the fleet of a campaign, as engine.Platform.
type platform struct{ s *campaignRun }

// realEffects are the effects of kinds that affect real processes more than simulated ones.
var realEffects = map[schedule.Kind][]check.Effect{
	schedule.Flapping:  {check.Severs},
	schedule.OfflineOn: {check.Severs},
	schedule.DiskFull:  {check.Chokes, check.Halts},
}

// lateEvidence is the time after a fault's end in which its evidence may appear.
const lateEvidence = 5 * time.Second

// healBound is the maximum time for healing a fault: a certificate may have to expire first.
const healBound = 4 * time.Minute

// newFaults returns the player of a schedule's faults, with the schedule's seed.
func (s *campaignRun) newFaults(seed uint64) *engine.Faults {
	p := platform{s}
	return &engine.Faults{
		Platform: p, Users: s.users,
		Topology: s.topology, Effects: realEffects, Targets: s.targetNames, Seed: seed, HealBound: healBound,
		AwaitEvidence: awaitHits, Observe: s.watch.judgeAndRecord, Began: s.recordFaultBegin, Ended: s.recordFaultEnd,
	}
}

// awaitHits waits up to lateEvidence until the fault shows an effect.
func awaitHits(ctx context.Context, _ schedule.Fault, a engine.Active) {
	for end := time.Now().Add(lateEvidence); time.Now().Before(end); {
		if hits, _ := a.Evidence(); hits > 0 || !engine.Pause(ctx, lateEvidence/20) {
			return
		}
	}
}

// targetNames returns the members that a fault may hit; nil: all edges. For the leader these are
// all hubs, since any of them may lead when the fault begins.
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

// recordFaultBegin counts a fault that begins, for the report and for the expectations.
func (s *campaignRun) recordFaultBegin(f schedule.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.played[f.Kind]++
	if s.expect != nil {
		s.expect.CountFaultBegin()
	}
}

// recordFaultEnd counts the effects of a fault that ended at over, and notes them in the history;
// `what` describes them. After a Restore it resumes the judgement of applied entries.
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

// Kinds of fault that need members with their own disks, and edges whose clocks can be moved.
var (
	needDisks  = []schedule.Kind{schedule.DiskFull, schedule.HubDiskFull, schedule.SlowDisk, schedule.PowerCut, schedule.TornPage}
	needClocks = []schedule.Kind{schedule.ClockJump, schedule.Clock1970}
)

// wantedKinds returns the kinds of fault that the configuration asks for; nil: all.
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

// onSite are the kinds of people on site, which no drawn schedule has here.
var onSite = []schedule.Kind{schedule.LocalStop, schedule.LocalRestart}

// possibleKinds returns the wanted kinds of fault that are possible on this ground with this fleet.
func (s *campaignRun) possibleKinds() []schedule.Kind {
	wanted := s.wantedKinds()
	return slices.DeleteFunc(schedule.Kinds(), func(k schedule.Kind) bool {
		info, _ := k.Info()
		unwanted := wanted != nil && !slices.Contains(wanted, k) || s.Scenario == nil && slices.Contains(onSite, k)
		cannot := !s.Disks && s.Rounds == 0 && slices.Contains(needDisks, k) || s.Clocked == "" && slices.Contains(needClocks, k) || s.space == nil && k == schedule.AddressChange
		cannot = cannot || len(s.Containers) == 0 && slices.Contains(needDaemons, k)
		few := s.Hubs < 3 && (k == schedule.MinorityCut || k == schedule.MajorityCut)
		return info.Clock&schedule.Real == 0 || unwanted || cannot || few
	})
}
