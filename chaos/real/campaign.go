package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/disk"
	"skerry/chaos/engine"
	"skerry/chaos/faultnet"
	"skerry/chaos/schedule"
)

// Campaign plays schedules on a fleet of real processes, one after the other: a scenario, or such as
// are drawn. After each of them everything is mended, has to become quiet, and is judged.
type Campaign struct {
	Ground
	CampaignConfig
}

// CampaignConfig is what a campaign shall be.
type CampaignConfig struct {
	Hubs, Edges int
	For         time.Duration
	Rounds      int // so many short rounds, instead of phases for For; 0: phases
	// Scenario is played once, in place of what is drawn; nil: phases or rounds are drawn.
	Scenario *schedule.Schedule
	Seed     uint64
	Kinds    []schedule.Kind // nil: all that the ground allows
	Disks    bool            // members have disks of their own
	Clocked  string          // program whose hub and edge have clocks that move, and whose hub tells what it applies; "": none
	Report   string          // folder for history and report; "": none
	Name     string          // of the history
	Repeat   string          // the command that repeats the run
	Versions map[string]string
}

// campaignRun is a Campaign under way.
type campaignRun struct {
	*fleetRun
	CampaignConfig
	topology schedule.Topology
	space    *faultnet.Netns // the ground's network, where it has machines of their own
	began    time.Time
	watch    *fleetWatcher
	expect   *engine.Expectations // of the scenario; nil: there is none
	short    stalls               // of processors

	users      *engine.Users         // of the schedule that is played
	faultCount int                   // faults that were played
	acked      map[schedule.Verb]int // steps of all schedules

	clones int

	mu      sync.Mutex
	played  map[schedule.Kind]int    // guarded by mu, as all below: faults that began
	hits    map[schedule.Kind]uint64 // what they really did
	down    map[string]int           // faults under which a member may be down
	rewound bool                     // hubs were put back by the schedule that is played
	playing time.Time                // when that schedule began
	settled []time.Duration          // by phase
	waited  []time.Duration          // for a processor, the longest of each phase
}

// Sizes of disks. Images take only what is written.
const (
	edgeDisk = 512 << 20
	hubDisk  = 512 << 20
)

// campaignSettleBound is how long everything may take to become quiet: besides what a round
// of partitions needs, certificates are renewed, journals are rebuilt, and delays of
// replacements have to pass.
const campaignSettleBound = 2 * time.Minute

// certificates are made valid for so long that some expire while their edges are cut
// off. A hub takes no shorter one.
const certificates = "90s"

// hasMovableClock reports whether a member's clock can be moved: that of every edge but the
// first and the last, which run what production runs.
func (p CampaignConfig) hasMovableClock(name string) bool {
	return p.Clocked != "" && strings.HasPrefix(name, "edge-") &&
		name != schedule.EdgeName(1) && name != schedule.EdgeName(p.Edges)
}

// Run runs the campaign. Everything that it started is gone when it returns; Dir stays.
func (p Campaign) Run(ctx context.Context) error {
	if p.Scenario != nil {
		if err := checkPlayable(*p.Scenario); err != nil {
			return fmt.Errorf("play the scenario on real processes: %w", err)
		}
		p.Hubs, p.Edges, p.Seed = len(p.Scenario.Topology.Hubs), len(p.Scenario.Topology.Edges), p.Scenario.Seed
	}
	p.printLine("%d hubs, %d edges, %s, seed %d, files in %s", p.Hubs, p.Edges, p.lengthText(), p.Seed, p.Dir)
	return p.runOnFleet(ctx, p.clusterConfig(), func(st *fleetRun) error {
		s, err := newCampaignRun(st, p.CampaignConfig)
		if err != nil {
			return err
		}
		err = s.runAllPhases(ctx)
		return s.watch.writeVerdictsAndClose(s.reportVerdict(err))
	})
}

// checkPlayable checks that real machines and tasks can be such as the scenario has them.
func checkPlayable(s schedule.Schedule) error {
	if len(s.Topology.Pools) > 0 {
		return errors.New("rules of node pools are for virtual time")
	}
	for _, e := range s.Topology.Edges {
		if e.Link != "" || e.JournalKiB > 0 {
			return fmt.Errorf("%s: link and journal are for virtual time", e.Name)
		}
	}
	for _, j := range s.Jobs {
		if j.Task != (schedule.Script{RunFor: j.Task.RunFor}) || j.Cores+j.Devices > 0 {
			return fmt.Errorf("job %s: of a task's script real tasks have run_for alone, and of claims no cores and devices", j.ID)
		}
	}
	return nil
}

func newCampaignRun(st *fleetRun, cfg CampaignConfig) (s *campaignRun, err error) {
	s = &campaignRun{
		fleetRun: st, CampaignConfig: cfg, topology: cfg.fleetTopology(), began: time.Now(), playing: time.Now(), acked: map[schedule.Verb]int{},
		played: map[schedule.Kind]int{}, hits: map[schedule.Kind]uint64{}, down: map[string]int{},
	}
	s.space, _ = s.Net.(*faultnet.Netns)
	s.settleBound = campaignSettleBound
	if s.Scenario != nil {
		s.expect = engine.NewExpectations(*s.Scenario)
	}
	if err := os.MkdirAll(s.crashDir(), 0o755); err != nil {
		return nil, fmt.Errorf("make the run's folder: %w", err)
	}
	if s.Scenario != nil {
		for _, f := range s.Scenario.Faults {
			if !slices.Contains(s.possibleKinds(), f.Kind) {
				return nil, fmt.Errorf("play the scenario: %s cannot be done here: it needs root, or virtual time", f.Kind)
			}
		}
	}
	s.watch, err = newFleetWatcher(s)
	return s, err
}

// fleetTopology is the scenario's, or a fleet at two sites.
func (p CampaignConfig) fleetTopology() schedule.Topology {
	if p.Scenario != nil {
		return p.Scenario.Topology
	}
	t := schedule.NewTopology(p.Hubs, 0)
	for n := range p.Edges {
		t = t.With(1, schedule.Edge{Site: []string{"north", "south"}[n%2]})
	}
	return t
}

// clusterConfig is a fleet that notices absence within seconds, with disks and clocks.
func (p CampaignConfig) clusterConfig() cluster.Config {
	t, c := p.fleetTopology(), fast(p.Hubs, p.Edges)
	c.HubFlags = append(slices.Clone(c.HubFlags), "--edge-cert-validity", certificates)
	c.EdgeFlagsOf = func(n int) []string { return edgeFlags(nil, t.Edges[n-1]) }
	if p.Disks {
		c.Disk = func(name, dir string) (*disk.Disk, error) {
			size := int64(edgeDisk)
			if strings.HasPrefix(name, "hub-") {
				size = hubDisk
			}
			return disk.Make(dir+".img", dir, size)
		}
	}
	// All hubs tell: what one of them has acknowledged it has told.
	c.Clocked, c.Clock = p.Clocked, p.hasMovableClock
	return c
}

// runAllPhases plays one schedule after the other.
func (s *campaignRun) runAllPhases(ctx context.Context) error {
	if err := s.awaitFleet(ctx); err != nil {
		return err
	}
	for _, m := range s.fleet.Machines() {
		s.observeProcess(m, check.ProcessStart)
	}
	for number := 1; ; number++ {
		plan, more := s.nextSchedule(number)
		if !more {
			return nil
		}
		if number == 1 {
			if err := s.startJobs(ctx, plan); err != nil {
				return err
			}
			stopWatching := s.watch.startWatching(ctx)
			defer stopWatching()
		}
		if err := s.runPhase(ctx, number, plan); err != nil {
			return fmt.Errorf("%s %d (seed %d): %w", s.phaseName(), number, s.Seed, err)
		}
		if len(s.watch.Violations()) > 0 {
			return nil
		}
	}
}

// startJobs has the jobs of a drawn schedule run before anything breaks.
func (s *campaignRun) startJobs(ctx context.Context, plan schedule.Schedule) error {
	if s.Scenario != nil {
		return nil
	}
	plan.Faults, plan.Steps, plan.Length = nil, nil, time.Second
	if err := s.playSchedule(ctx, plan); err != nil {
		return err
	}
	_, err := s.waitUntilQuiet(ctx)
	return err
}

// nextSchedule is the schedule of a number, from 1; false: there is none.
func (s *campaignRun) nextSchedule(number int) (plan schedule.Schedule, more bool) {
	if s.Scenario != nil {
		return *s.Scenario, number == 1
	}
	if s.Rounds > 0 {
		plan = s.drawRound(number)
		addWork(&plan, workEvery/4) // at least once in most rounds
		return plan, number <= s.Rounds
	}
	left := s.For - time.Since(s.began)
	plan = s.drawPhaseFaults(number, min(phaseLength, max(left-quietShare, minPhaseLength/2)))
	addWork(&plan, workEvery)
	return plan, left >= minPhaseLength || number == 1
}

func (p CampaignConfig) phaseName() string {
	switch {
	case p.Scenario != nil:
		return "scenario"
	case p.Rounds > 0:
		return "round"
	}
	return "phase"
}

func (p CampaignConfig) lengthText() string {
	switch {
	case p.Scenario != nil:
		return p.Scenario.Length.String()
	case p.Rounds > 0:
		return fmt.Sprintf("%d rounds", p.Rounds)
	}
	return p.For.String()
}

// runPhase plays a schedule, mends everything, waits until all is quiet, and judges.
func (s *campaignRun) runPhase(ctx context.Context, number int, plan schedule.Schedule) error {
	s.watch.writeNote(fmt.Sprintf("%s %d: %d faults in %s\n%s", s.phaseName(), number, len(plan.Faults), plan.Length.Round(time.Second), plan))
	s.mu.Lock()
	s.rewound = false
	s.mu.Unlock()
	if err := s.playSchedule(ctx, plan); err != nil {
		return err
	}
	if err := s.mendAll(ctx); err != nil {
		return err
	}
	return s.settleAndJudge(ctx, number, len(plan.Faults))
}

// playSchedule lets faults happen, and users act, until the schedule's length is over.
func (s *campaignRun) playSchedule(ctx context.Context, plan schedule.Schedule) error {
	s.mu.Lock()
	s.playing = time.Now()
	s.mu.Unlock()
	s.users = &engine.Users{Schedule: plan, Elapsed: s.elapsedTime, Observe: s.watch.judgeAndRecord, Adapt: s.adaptJob}
	for _, h := range s.fleet.Hubs {
		s.users.Hubs = append(s.users.Hubs, h.Hub)
	}
	faults := s.newFaults(plan.Seed)
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range schedule.WithInducedFaults(plan.Faults) {
		s.faultCount++
		number := s.faultCount
		group.Go(func() error { return faults.Play(ctx, number, f) })
	}
	acting, stop := context.WithTimeout(ctx, plan.Length)
	defer stop()
	s.users.Play(acting, group)
	group.Go(func() error { <-acting.Done(); return ctx.Err() })
	if err := group.Wait(); err != nil {
		return err
	}
	if s.wasRewound() && s.Scenario == nil {
		if err := s.users.RepeatAll(ctx); err != nil {
			return err
		}
	}
	for verb, n := range s.users.AckedSteps() {
		s.acked[verb] += n
	}
	return nil
}

// elapsedTime is the time of the schedule that is played.
func (s *campaignRun) elapsedTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.playing)
}

// settleAndJudge waits until all is quiet, and judges.
func (s *campaignRun) settleAndJudge(ctx context.Context, number, faults int) error {
	began := time.Now()
	s.wanted = s.users.WantedCounts()
	picture, err := s.waitUntilQuiet(ctx)
	took := time.Since(began)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		s.watch.recordUnsettled(err, picture)
	} else {
		if s.expect != nil {
			s.expect.RecordSettled(s.elapsedTime())
			s.watch.updateExpectations(ctx)
		}
		s.watch.judgeQuietSnapshot(picture)
		s.watch.observeMemberUsage()
	}
	s.settled = append(s.settled, took)
	s.waited = append(s.waited, s.short.takeLongestStall())
	verdict := "ok"
	if vs := s.watch.Violations(); len(vs) > 0 {
		verdict = fmt.Sprintf("%d VIOLATIONS", len(vs))
	}
	s.printLine("%6s  %s %d: %d faults; quiet after %.1fs: %s", time.Since(s.began).Round(time.Second), s.phaseName(), number, faults, took.Seconds(), verdict)
	return nil
}

// mendAll starts what is still down, and waits for the hubs.
func (s *campaignRun) mendAll(ctx context.Context) error {
	for _, m := range s.fleet.Machines() {
		if err := s.startMachine(m); err != nil {
			return err
		}
	}
	for _, h := range s.fleet.Hubs {
		if err := h.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *campaignRun) crashDir() string { return filepath.Join(s.Dir, "crash") }
