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

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/disk"
	"skerry/chaos/engine"
	"skerry/chaos/faultnet"
	"skerry/chaos/schedule"
	"skerry/drivers/docker/dockertest"
)

// Campaign plays one scenario, or drawn schedules one after the other, on a fleet of real
// processes. After each schedule all faults are healed, the fleet has to become quiet, and the
// invariants are checked.
type Campaign struct {
	Ground
	CampaignConfig
}

// CampaignConfig configures a Campaign.
type CampaignConfig struct {
	Hubs, Edges int
	For         time.Duration
	Rounds      int // number of short rounds to play; 0: play phases for the time For
	// Scenario is played once in place of drawn schedules; nil: phases or rounds are drawn.
	Scenario *schedule.Schedule
	Seed     uint64
	Kinds    []schedule.Kind // kinds of fault; nil: all that are possible on the ground
	Disks    bool            // each member has its own disk
	Clocked  string          // program with the commands hub and edge, whose clocks can be moved and whose hub exports applied entries; "": none
	// Containers are the container drivers, docker and podman, that jobs may have. Each edge gets a daemon of one of
	// them. Empty: none.
	Containers []string
	Report     string // directory for history and report; "": none are written
	Name       string // name of the history; "": made from the seed
	Repeat     string // the command that repeats the run
	Versions   map[string]string
}

// campaignRun is the state of a running Campaign.
type campaignRun struct {
	*fleetRun
	CampaignConfig
	topology schedule.Topology
	space    *faultnet.Netns // the ground's network, if it has network namespaces; otherwise nil
	began    time.Time
	watch    *fleetWatcher
	expect   *engine.Expectations // expectations of the scenario; nil: no scenario
	short    stalls               // the longest time that the harness waited for a processor

	users      *engine.Users         // users of the current schedule
	faultCount int                   // number of faults played
	acked      map[schedule.Verb]int // number of acknowledged steps in all schedules

	clones int

	management string              // secret of the management token
	siteCode   api.CreatedSiteCode // of a person on any site
	lastSearch time.Time           // start of the last search for secrets in the middle of the run
	searches   int                 // number of searches
	searched   int                 // number of files in all of them
	searchTime time.Duration       // of all of them
	searchErr  error               // the first error of a search

	mu      sync.Mutex
	played  map[schedule.Kind]int    // guarded by mu, as all below: faults begun, by kind
	hits    map[schedule.Kind]uint64 // effects of faults, by kind
	down    map[string]int           // number of current faults that may have stopped the member
	rewound bool                     // the current schedule restored the hubs from a copy
	playing time.Time                // start of the current schedule
	settled []time.Duration          // time until the fleet was quiet, by phase
	waited  []time.Duration          // longest wait for a processor, by phase
}

// Sizes of disks, in bytes. Their images take only the space of written blocks.
const (
	edgeDisk = 512 << 20
	hubDisk  = 512 << 20
)

// campaignSettleBound is the time in which the fleet has to become quiet after a phase. It allows
// for renewing certificates, rebuilding journals, and the delays of replacements.
const campaignSettleBound = 2 * time.Minute

// certificates is the validity of edges' certificates. It is the shortest that a hub accepts, so
// that some expire while their edges are cut off.
const certificates = "90s"

// hasMovableClock reports whether a member's clock can be moved. It can for every edge but the first
// and the last, which run the production program.
func (p CampaignConfig) hasMovableClock(name string) bool {
	return p.Clocked != "" && strings.HasPrefix(name, "edge-") &&
		name != schedule.EdgeName(1) && name != schedule.EdgeName(p.Edges)
}

// Run plays the campaign, prints its results and returns its verdict. All processes have ended when
// it returns; the files in Dir stay.
func (p Campaign) Run(ctx context.Context) error {
	if p.Scenario != nil {
		if err := checkPlayable(*p.Scenario, p.Containers); err != nil {
			return fmt.Errorf("play the scenario on real processes: %w", err)
		}
		p.Hubs, p.Edges, p.Seed = len(p.Scenario.Topology.Hubs), len(p.Scenario.Topology.Edges), p.Scenario.Seed
	}
	p.printLine("%d hubs, %d edges, %s, seed %d, files in %s", p.Hubs, p.Edges, p.lengthText(), p.Seed, p.Dir)
	if len(p.Containers) > 0 {
		p.printLine("edges have container daemons in turn: %s", strings.Join(p.Containers, ", "))
	}
	return p.runOnFleet(ctx, p.clusterConfig(), func(st *fleetRun) error {
		s, err := newCampaignRun(st, p.CampaignConfig)
		if err != nil {
			return err
		}
		if err = s.runAllPhases(ctx); err == nil {
			s.judgeSecretsAtEnd(ctx)
		}
		return errors.Join(s.watch.writeVerdictsAndClose(s.reportVerdict(err)), s.searchReport())
	})
}

// checkPlayable returns an error if the scenario uses a feature of virtual time, or a container driver that this
// machine lacks.
func checkPlayable(s schedule.Schedule, containers []string) error {
	if len(s.Topology.Pools) > 0 {
		return errors.New("node pools are supported in virtual time only")
	}
	for _, e := range s.Topology.Edges {
		if e.Link != "" || e.JournalKiB > 0 {
			return fmt.Errorf("%s: link and journal are supported in virtual time only", e.Name)
		}
	}
	for _, j := range s.Jobs {
		if j.Driver != "" && !slices.Contains(containers, j.Driver) {
			return fmt.Errorf("job %s: %s cannot run here: %w", j.ID, j.Driver, dockertest.Missing(j.Driver))
		}
		if j.Task != (schedule.Script{RunFor: j.Task.RunFor}) || j.Cores+j.Devices > 0 {
			return fmt.Errorf("job %s: real tasks support only run_for of a task's script, and neither cores nor devices", j.ID)
		}
	}
	return nil
}

// newCampaignRun returns the state of a campaign on a started fleet, with an open history. It
// returns an error if a fault of the scenario is not possible on this ground.
func newCampaignRun(st *fleetRun, cfg CampaignConfig) (s *campaignRun, err error) {
	s = &campaignRun{
		fleetRun: st, CampaignConfig: cfg, topology: cfg.fleetTopology(), began: time.Now(), playing: time.Now(), acked: map[schedule.Verb]int{},
		played: map[schedule.Kind]int{}, hits: map[schedule.Kind]uint64{}, down: map[string]int{},
	}
	s.space, _ = s.Net.(*faultnet.Netns)
	s.settleBound, s.searchesItself = campaignSettleBound, true
	if s.Scenario != nil {
		s.expect = engine.NewExpectations(*s.Scenario)
	}
	if err := os.MkdirAll(s.crashDir(), 0o755); err != nil {
		return nil, fmt.Errorf("make the run's folder: %w", err)
	}
	if s.Scenario != nil {
		for _, f := range s.Scenario.Faults {
			if !slices.Contains(s.possibleKinds(), f.Kind) {
				return nil, fmt.Errorf("play the scenario: faults of the kind %s are not possible here: run it as root, or in virtual time", f.Kind)
			}
		}
	}
	s.watch, err = newFleetWatcher(s)
	return s, err
}

// fleetTopology returns the scenario's topology, or else one with edges at two sites in turn.
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

// clusterConfig returns the configuration of the campaign's fleet: fast timers, short certificates,
// and the disks and clocks that the configuration asks for.
func (p CampaignConfig) clusterConfig() cluster.Config {
	t, c := p.fleetTopology(), fast(p.Hubs, p.Edges)
	c.HubFlags = append(slices.Clone(c.HubFlags), "--edge-cert-validity", certificates, "--debug")
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
	if len(p.Containers) > 0 {
		c.Daemon, c.Image = p.daemonOf, campaignImage
	}
	// All hubs export: each one has exported an entry before it acknowledges it.
	c.Clocked, c.Clock = p.Clocked, p.hasMovableClock
	return c
}

// runAllPhases plays all schedules of the campaign, one after the other. It stops after a phase with
// a violation, which is no error here.
func (s *campaignRun) runAllPhases(ctx context.Context) error {
	if err := s.awaitFleet(ctx); err != nil {
		return err
	}
	if err := s.turnAccessOn(ctx); err != nil {
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

// startJobs registers the jobs of a drawn schedule and waits until they run, before the first fault.
// It does nothing for a scenario.
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

// nextSchedule returns schedule number n, from 1; more is false if the campaign is over.
func (s *campaignRun) nextSchedule(number int) (plan schedule.Schedule, more bool) {
	if s.Scenario != nil {
		return *s.Scenario, number == 1
	}
	if s.Rounds > 0 {
		plan = s.drawRound(number)
		addWork(&plan, workEvery/4, s.Containers) // at least once in most rounds
		return plan, number <= s.Rounds
	}
	left := s.For - time.Since(s.began)
	plan = s.drawPhaseFaults(number, min(phaseLength, max(left-quietShare, minPhaseLength/2)))
	addWork(&plan, workEvery, s.Containers)
	return plan, left >= minPhaseLength || number == 1
}

// phaseName returns the word for one schedule of the campaign.
func (p CampaignConfig) phaseName() string {
	switch {
	case p.Scenario != nil:
		return "scenario"
	case p.Rounds > 0:
		return "round"
	}
	return "phase"
}

// lengthText returns the length of the campaign for its first line.
func (p CampaignConfig) lengthText() string {
	switch {
	case p.Scenario != nil:
		return p.Scenario.Length.String()
	case p.Rounds > 0:
		return fmt.Sprintf("%d rounds", p.Rounds)
	}
	return p.For.String()
}

// runPhase plays a schedule, starts everything that is down, waits until the fleet is quiet, and
// checks the invariants.
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

// playSchedule plays the faults, steps and operations of a schedule at the same time, until its
// length is over and all faults are healed.
func (s *campaignRun) playSchedule(ctx context.Context, plan schedule.Schedule) error {
	s.mu.Lock()
	s.playing = time.Now()
	s.mu.Unlock()
	earlier := s.users
	s.users = &engine.Users{Schedule: plan, Elapsed: s.elapsedTime, Observe: s.watch.judgeAndRecord, Adapt: s.adaptJobsOf(plan), Marks: s.marks}
	s.users.ContinueSecrets(earlier)
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

// elapsedTime returns the time since the start of the current schedule.
func (s *campaignRun) elapsedTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.playing)
}

// settleAndJudge waits until the fleet is quiet, checks the invariants, and prints a line about the
// phase. A fleet that does not become quiet is recorded as a violation and is no error.
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
		s.judgeSecrets(ctx)
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

// mendAll starts the processes that are down, and waits until all hubs are ready.
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

// crashDir returns the directory of the files by which CrashTasks makes tasks end.
func (s *campaignRun) crashDir() string { return filepath.Join(s.Dir, "crash") }
