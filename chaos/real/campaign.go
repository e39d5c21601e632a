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

	"skerry/chaos/cluster"
	"skerry/chaos/disk"
	"skerry/chaos/engine"
	"skerry/chaos/faultnet"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

// Campaign is a long run of random faults of every kind that real processes allow,
// many at a time, with jobs that come, change and go all the while. Every few
// minutes everything is mended, has to become quiet, and is judged.
type Campaign struct {
	Ground
	CampaignConfig
}

// CampaignConfig is what a storm shall be.
type CampaignConfig struct {
	Hubs, Edges int
	For         time.Duration
	Rounds      int // so many short rounds, instead of phases for For; 0: phases
	Seed        uint64
	Kinds       []schedule.Kind // nil: all that the ground allows
	Disks       bool            // members have disks of their own
	Clocked     string          // program whose hub and edge have clocks that move, and whose hub tells what it applies; "": none
	Report      string          // folder for history and report; "": none
	Name        string          // of the history
	Repeat      string          // the command that repeats the run
	Versions    map[string]string
}

// campaignRun is a Storm under way.
type campaignRun struct {
	*fleetRun
	CampaignConfig
	space *faultnet.Netns // the ground's network, where it has machines of their own
	began time.Time
	watch *fleetWatcher
	work  *userWorkload
	short stalls // of processors

	faults     *engine.Faults
	faultCount int // faults that were played

	saved  bool // there is a copy of all hubs' data
	clones int

	mu      sync.Mutex
	played  map[schedule.Kind]int    // guarded by mu, as all below: faults that began
	hits    map[schedule.Kind]uint64 // what they really did
	down    map[string]int           // faults under which a member may be down
	rewound bool                     // hubs were put back since the last quiet time
	settled []time.Duration          // by chapter
	waited  []time.Duration          // for a processor, the longest of each chapter
}

// Sizes of disks. Images take only what is written.
const (
	edgeDisk = 512 << 20
	hubDisk  = 512 << 20
)

// campaignSites are where edges stand, in turns.
var campaignSites = []string{"north", "south"}

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

// Run runs the storm. Everything that it started is gone when it returns; Dir stays.
func (p Campaign) Run(ctx context.Context) error {
	p.printLine("%d hubs, %d edges, %s, seed %d, files in %s", p.Hubs, p.Edges, p.lengthText(), p.Seed, p.Dir)
	sz := fast(p.Hubs, p.Edges)
	sz.hubFlags = append(slices.Clone(sz.hubFlags), "--edge-cert-validity", certificates)
	sz.dress = p.configureCluster
	return p.runOnFleet(ctx, sz, func(st *fleetRun) error {
		s, err := newCampaignRun(st, p.CampaignConfig)
		if err != nil {
			return err
		}
		err = s.runAllPhases(ctx)
		return s.watch.writeVerdictsAndClose(s.reportVerdict(err))
	})
}

func newCampaignRun(st *fleetRun, cfg CampaignConfig) (s *campaignRun, err error) {
	s = &campaignRun{
		fleetRun: st, CampaignConfig: cfg, began: time.Now(), played: map[schedule.Kind]int{}, hits: map[schedule.Kind]uint64{}, down: map[string]int{},
	}
	s.space, _ = s.Net.(*faultnet.Netns)
	s.settleBound = campaignSettleBound
	if err := os.MkdirAll(s.crashDir(), 0o755); err != nil {
		return nil, fmt.Errorf("make the run's folder: %w", err)
	}
	if s.watch, err = newFleetWatcher(s); err != nil {
		return nil, err
	}
	s.faults = s.newFaults()
	return s, nil
}

// configureCluster gives members names as schedules have them, disks and clocks.
func (p CampaignConfig) configureCluster(c *cluster.Config) {
	c.HubName, c.EdgeName = schedule.HubName, schedule.EdgeName
	c.EdgeFlagsOf = func(n int) []string { return []string{"--site", campaignSites[n%len(campaignSites)]} }
	if p.Disks {
		c.Disk = func(name, dir string) (*disk.Disk, error) {
			size := int64(edgeDisk)
			if strings.HasPrefix(name, "hub-") {
				size = hubDisk
			}
			return disk.Make(dir+".img", dir, size)
		}
	}
	if p.Clocked != "" {
		// All hubs tell: what one of them has acknowledged it has told.
		c.Clocked, c.Clock, c.Tells = p.Clocked, p.hasMovableClock, true
	}
}

// runAllPhases runs chapter after chapter until the time is over.
func (s *campaignRun) runAllPhases(ctx context.Context) error {
	s.work = newUserWorkload(s)
	if err := s.work.startAllJobs(ctx); err != nil {
		return err
	}
	stopWatching := s.watch.startWatching(ctx)
	defer stopWatching()
	for number := 1; ; number++ {
		length, more := s.nextPhaseLength(number)
		if !more {
			return nil
		}
		if err := s.runPhase(ctx, number, length); err != nil {
			return fmt.Errorf("%s %d (seed %d): %w", s.phaseName(), number, s.Seed, err)
		}
		if len(s.watch.Violations()) > 0 {
			return nil
		}
	}
}

// nextPhaseLength is how long the phase of a number is; false: there is none. A round is as
// long as its faults.
func (s *campaignRun) nextPhaseLength(number int) (length time.Duration, more bool) {
	if s.Rounds > 0 {
		return 0, number <= s.Rounds
	}
	left := s.For - time.Since(s.began)
	return min(phaseLength, max(left-quietShare, minPhaseLength/2)), left >= minPhaseLength || number == 1
}

func (p CampaignConfig) phaseName() string {
	if p.Rounds > 0 {
		return "round"
	}
	return "phase"
}

func (p CampaignConfig) lengthText() string {
	if p.Rounds > 0 {
		return fmt.Sprintf("%d rounds", p.Rounds)
	}
	return p.For.String()
}

// runPhase breaks things for a while, mends everything, waits until all is quiet, and
// judges.
func (s *campaignRun) runPhase(ctx context.Context, number int, length time.Duration) error {
	if err := s.saveHubs(ctx); err != nil {
		return err
	}
	drawn := s.drawRound(number)
	if s.Rounds == 0 {
		drawn = s.drawPhaseFaults(number, length)
	}
	s.watch.writeNote(fmt.Sprintf("%s %d: %d faults in %s\n%s", s.phaseName(), number, len(drawn.Faults), drawn.Length.Round(time.Second), drawn))
	working, stopWorking := context.WithCancel(ctx)
	var over sync.WaitGroup
	over.Go(func() { s.work.runUserActions(working) })
	err := s.runFaults(ctx, schedule.WithInducedFaults(drawn.Faults))
	stopWorking()
	over.Wait()
	if err != nil {
		return err
	}
	if err := s.mendAll(ctx); err != nil {
		return err
	}
	return s.settleAndJudge(ctx, number, len(drawn.Faults))
}

// settleAndJudge waits until all is quiet, and judges.
func (s *campaignRun) settleAndJudge(ctx context.Context, number, faults int) error {
	began := time.Now()
	if err := s.work.settleAllJobs(ctx); err != nil {
		return err
	}
	_, picture, err := s.waitUntilQuiet(ctx)
	took := time.Since(began)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		s.watch.recordUnsettled(err, picture)
	} else {
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
	for _, e := range s.fleet.Edges {
		if !e.Running() {
			if err := s.startEdge(e); err != nil {
				return err
			}
		}
	}
	for _, h := range s.fleet.Hubs {
		if !h.Running() {
			if err := s.startHub(h); err != nil {
				return err
			}
		}
	}
	for _, h := range s.fleet.Hubs {
		if err := h.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reportVerdict is what the run comes to.
func (s *campaignRun) reportVerdict(err error) error {
	never, played := s.summarizeKindHits()
	s.printLine("\nfaults that hit: %s", played)
	s.printLine("what people did: %s", s.work.userActionCounts())
	s.printLine("quiet again after: median %s, longest %s", median(s.settled), longest(s.settled))
	s.printLine("waited for a processor: chapters' median %s, longest %s", median(s.waited), longest(s.waited))
	vs := s.watch.judgeAtEnd()
	err = errors.Join(err, s.watch.exportReadError())
	s.printLine("%s", strings.TrimSuffix(s.watch.formatVerdictTable(), "\n"))
	switch {
	case len(vs) > 0:
		for _, v := range vs {
			s.printLine("    %s", v)
		}
		if why := stalled(longest(s.waited)); why != "" {
			s.printLine("    %s", why)
		}
		return errors.Join(fmt.Errorf("%w: %s; repeat it with --seed %d, files are in %s", ErrViolated, vs[0], s.Seed, s.Dir), err)
	case errors.Is(err, disk.ErrRemembers):
		return fmt.Errorf("%w: %w", ErrVoid, err)
	case err != nil:
		return err
	case len(never) > 0:
		return fmt.Errorf("%w: never hit: %s", ErrVoid, strings.Join(never, ", "))
	}
	if never := s.unjudgedInvariants(); len(never) > 0 && s.Clocked != "" && s.For >= rollingRun {
		return fmt.Errorf("%w: never judged: %s", ErrVoid, strings.Join(never, ", "))
	}
	return nil
}

// longRun is from which length on every kind has to have come up: each is due within
// a few chapters. In a shorter one bad luck has to come twice: a crash that finds no
// task, a rebind behind a cut.
const (
	longRun = 15 * time.Minute
	badLuck = 2
)

// rollingRun is from which length on rollouts, launches and drains have to have come up:
// there is one every few seconds.
const rollingRun = 2 * time.Minute

// summarizeKindHits lists the kinds that were tried, and never hit; and renders all counts.
func (s *campaignRun) summarizeKindHits() (never []string, all string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var counts []string
	for _, k := range s.possibleKinds() {
		counts = append(counts, fmt.Sprintf("%s %d", k, s.played[k]))
		if s.hits[k] == 0 && (s.played[k] >= badLuck || s.For >= longRun || s.Rounds >= voidBelow) {
			never = append(never, string(k))
		}
	}
	return never, strings.Join(counts, ", ")
}

func (s *campaignRun) crashDir() string { return filepath.Join(s.Dir, "crash") }

func (s *campaignRun) edgeByName(name string) *cluster.Edge {
	return s.fleet.Edges[slices.IndexFunc(s.fleet.Edges, func(e *cluster.Edge) bool { return e.Name == name })]
}

func (s *campaignRun) hubByName(name string) *cluster.Hub {
	return s.fleet.Hubs[slices.IndexFunc(s.fleet.Hubs, func(h *cluster.Hub) bool { return h.Name == name })]
}

// setWantedCount is what shall run, by jobs.
func (s *campaignRun) setWantedCount(id fleet.JobID, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if count < 0 {
		delete(s.wanted, id)
		return
	}
	s.wanted[id] = count
}
