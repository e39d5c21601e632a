package virtual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/fabric"
	"skerry/chaos/schedule"
	"skerry/edge/local"
	"skerry/fleet"
)

// Absence is the tale of an edge that is away for longer than a year. Its link is cut
// while it works; the hubs and the other edges go on for a while and are then put away
// until the day on which it is let back. Meanwhile its machine reboots every few weeks,
// loses its power, wakes up in 1970 and in 2100, and its certificate ends. Nobody helps
// it back.
type Absence struct {
	Dir  string
	Seed uint64
	Days int // 0: 400
	// Together is how long hubs and the other edges go on without it, 0: 48 h.
	Together time.Duration
	// FailEvery is how often one of its tasks fails, 0: 3 h: that makes its history long.
	FailEvery time.Duration
	// BackoffCap is the edge's longest pause between rounds of dialing, 0: 1 h. In
	// production it is a minute, and 576,000 rounds of dialing nobody are most of what 400
	// days cost: 9 min instead of half a one.
	BackoffCap      time.Duration
	JournalMaxBytes int64 // bound of the edge's journal, 0: 64 MiB
	Repeat          string
	History         io.Writer // nil: nobody keeps it
	LogLevel        slog.Level
}

// Who is in the tale, by the sites of their edges.
const (
	siteShip   = "ship"   // is away
	siteTender = "tender" // takes over what may be replaced
	siteShop   = "shop"   // has nothing to do with it
)

// Jobs of the tale.
const (
	jobEngine fleet.JobID = "engine" // runs on the ship for as long as it is told to
	jobSensor fleet.JobID = "sensor" // fails there again and again
	jobSurvey fleet.JobID = "survey" // a batch that ends there after 5 days
	jobPump   fleet.JobID = "pump"   // fails there for good after 8 days
	jobRelay  fleet.JobID = "relay"  // is replaced on the tender, and goes on on the ship
	jobTill   fleet.JobID = "till"   // runs in the shop

	jobBallast fleet.JobID = "ballast" // fills the tender until the relay has its place
)

const (
	day = 24 * time.Hour
	// placing is how long the fleet has to place everything before the link is cut.
	placing = 10 * time.Minute
	// certOfAbsence is how long the ship's certificate is valid: it ends long before it is
	// back, and the hubs' grace does not.
	certOfAbsence = 90 * day
	// sensorDelay is the pause before the sensor is started again.
	sensorDelay = 15 * time.Second
	// lookTogether is how often the fleet is looked at while hubs run.
	lookTogether = 10 * time.Second
)

func (a Absence) withDefaults() Absence {
	a.Days = cmp.Or(a.Days, 400)
	a.Together = cmp.Or(a.Together, 48*time.Hour)
	a.FailEvery = cmp.Or(a.FailEvery, 3*time.Hour)
	a.BackoffCap = cmp.Or(a.BackoffCap, time.Hour)
	return a
}

// buildSchedule is the part of the tale that any run could play: who there is, and what shall
// run.
func (a Absence) buildSchedule() schedule.Schedule {
	yes := true
	s := schedule.Schedule{
		Seed: a.Seed, Length: placing, Settle: 3 * time.Hour, Topology: schedule.NewTopology(3, 0),
		Jobs: []schedule.Job{
			{ID: jobBallast, Type: fleet.JobTypeService, Count: 1, Site: siteTender, CPU: 3000},
			{ID: jobEngine, Type: fleet.JobTypeService, Count: 1, Site: siteShip},
			{ID: jobSensor, Type: fleet.JobTypeService, Count: 1, Site: siteShip,
				Task:    schedule.Script{RunFor: a.FailEvery, ExitCode: 1},
				Restart: &fleet.RestartPolicy{Attempts: 3, Interval: 10 * time.Minute, Delay: sensorDelay, Mode: "delay"}},
			{ID: jobSurvey, Type: fleet.JobTypeBatch, Count: 1, Site: siteShip, Task: schedule.Script{RunFor: 5 * day}},
			{ID: jobPump, Type: fleet.JobTypeService, Count: 1, Site: siteShip,
				Task:    schedule.Script{RunFor: 8 * day, ExitCode: 1},
				Restart: &fleet.RestartPolicy{Attempts: 0, Interval: time.Minute, Delay: time.Second, Mode: "fail"}},
			{ID: jobRelay, Type: fleet.JobTypeService, Count: 1, Start: time.Minute, Datacenters: []string{"sea"}, CPU: 2000,
				Disconnect: &fleet.Disconnect{Replace: &yes, Reconcile: fleet.ReconcileKeepOriginal}},
			{ID: jobTill, Type: fleet.JobTypeService, Count: 1, Site: siteShop},
		},
		Steps: []schedule.Step{{At: 3 * time.Minute, Verb: schedule.Stop, Job: jobBallast}},
	}
	for _, e := range []schedule.Edge{
		{Site: siteShip, Datacenter: "sea"}, {Site: siteTender, Datacenter: "sea"}, {Site: siteShop, Datacenter: "land"},
	} {
		s.Topology = s.Topology.With(1, e)
	}
	return s
}

// Run plays the tale. It must be called inside a bubble, and returns when all of the
// cluster is gone. wall is the time outside of it. An error is the harness's own.
func (a Absence) Run(ctx context.Context, wall func() time.Duration) (AbsenceOutcome, error) {
	a = a.withDefaults()
	r, err := Play{
		Schedule: a.buildSchedule(), Name: "absence", Repeat: a.Repeat, Dir: a.Dir, History: a.History,
		Tuning: Stretched, LogLevel: a.LogLevel,
		Limits: check.Limits{
			Heal: a.BackoffCap + 15*time.Minute, Ready: 5 * time.Minute, Slack: 3 * lookTogether,
			JournalBytes: a.JournalMaxBytes,
		},
	}.openRun(wall)
	if err != nil {
		return AbsenceOutcome{}, err
	}
	t := &absence{run: r, a: a, rng: rand.New(rand.NewPCG(a.Seed, 400)), truth: newGroundTruth(edgeNames(r.s.Topology)[0])}
	began := wall()
	err = t.playAbsence(ctx)
	t.out.Outcome = r.summarizeOutcome(wall()-began, err)
	return t.out, errors.Join(err, r.recorder.History.Flush())
}

// absence is a tale that goes on.
type absence struct {
	*run
	a                Absence
	rng              *rand.Rand
	ship             *Edge
	truth            *groundTruth
	faultCount       int          // faults that were told of
	heal             func()       // lets the ship back
	recordOthersBack func(uint64) // tells that the others are back
	out              AbsenceOutcome
}

func (t *absence) playAbsence(ctx context.Context) (err error) {
	if err := t.startFleet(ctx); err != nil {
		return err
	}
	defer func() {
		t.ended.Store(true)
		err = errors.Join(err, t.c.Close())
	}()
	for _, chapter := range []func(context.Context) error{t.placeAllJobs, t.cutShipOff, t.stopAllButShip, t.spendTimeAlone, t.comeBack} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return t.summarizeAbsence(ctx)
}

// startFleet starts the fleet.
func (t *absence) startFleet(ctx context.Context) (err error) {
	cfg := t.clusterConfig()
	cfg.EdgeCertValidity = certOfAbsence
	cfg.Edges[0].BackoffCap, cfg.Edges[0].JournalMaxBytes = t.a.BackoffCap, t.a.JournalMaxBytes
	cfg.Taps.Task = t.truth.taskEventObserver(cfg.Taps.Task)
	cfg.Taps.Applied = t.truth.appliedRowsObserver(cfg.Taps.Applied)
	t.began = time.Now()
	t.making.Store(true)
	if t.c, err = Start(ctx, cfg); err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	t.ship = t.c.Edges[0]
	for _, m := range t.allMembers() {
		t.observeProcess(m.name, m.edge, check.ProcessStart)
	}
	if err := t.awaitFleet(ctx); err != nil {
		return errors.Join(err, t.c.Close())
	}
	t.began = time.Now() // times of the tale count from here
	t.making.Store(false)
	return nil
}

// watchFleetDuring looks at the fleet, as any run does, while do goes on.
func (t *absence) watchFleetDuring(ctx context.Context, do func(context.Context) error) error {
	looking, stop := context.WithCancel(ctx)
	var watch errgroup.Group
	watch.Go(func() error { t.watchFleet(looking); return nil })
	err := do(ctx)
	stop()
	return errors.Join(err, watch.Wait())
}

// placeAllJobs has everything placed.
func (t *absence) placeAllJobs(ctx context.Context) error {
	return t.watchFleetDuring(ctx, t.playConcurrently)
}

// cutShipOff cuts the ship off. Everybody else goes on for a while.
func (t *absence) cutShipOff(ctx context.Context) error {
	t.out.Left = t.elapsedTime()
	t.out.CertificateAtFirst = t.shipStatus(ctx).Cert.NotAfter
	cut := t.c.Net.Cut(fabric.Hosts(t.ship.Name), fabric.Hosts(t.s.Topology.Hubs...), fabric.Both, fabric.Silent)
	severed := t.recordFaultBegin(string(schedule.LinkCut), []check.Effect{check.Severs}, t.ship.Name)
	t.heal = func() { cut.Heal(); severed(uint64(cut.Hits())) }
	for end := time.Now().Add(t.a.Together); time.Now().Before(end); {
		if !engine.Pause(ctx, lookTogether) {
			return ctx.Err()
		}
		for _, h := range t.c.Hubs {
			t.observeHub(h)
		}
		for _, e := range t.c.Edges {
			t.observeEdge(ctx, e, true)
		}
	}
	return nil
}

// stopAllButShip puts everything but the ship away.
func (t *absence) stopAllButShip(context.Context) error {
	t.recordOthersBack = t.recordFaultBegin("suspended", []check.Effect{check.Halts, check.Reboots},
		slices.Concat(t.s.Topology.Hubs, edgeNames(t.s.Topology)[1:])...)
	for _, h := range t.c.Hubs {
		t.observeProcess(h.Name, false, check.ProcessKill)
		if err := h.Crash(); err != nil {
			return err
		}
	}
	for _, e := range t.c.Edges[1:] {
		t.observeProcess(e.Name, true, check.ProcessReboot)
		if err := e.Shutdown(); err != nil {
			return err
		}
	}
	return nil
}

// comeBack starts everything else, lets the ship back, and waits until it has come, has
// a certificate that holds, and all is quiet.
func (t *absence) comeBack(ctx context.Context) error {
	return t.watchFleetDuring(ctx, func(ctx context.Context) error {
		for _, h := range t.c.Hubs {
			if err := t.startHub(ctx, h); err != nil {
				return err
			}
		}
		for _, e := range t.c.Edges[1:] {
			if err := t.bootEdge(e); err != nil {
				return err
			}
		}
		t.recordOthersBack(1)
		t.out.Away, t.out.Back = t.elapsedTime()-t.out.Left, time.Now()
		t.heal()
		healed := t.elapsedTime()
		if err := t.waitUntilResolved(ctx, "the ship's return", t.a.BackoffCap+30*time.Minute, t.firstUnsettled); err != nil {
			return err
		}
		t.out.Rejoin = t.elapsedTime() - healed
		if err := t.waitUntilResolved(ctx, "the ship's certificate", 2*time.Hour, t.certificateProblem); err != nil {
			return err
		}
		t.out.CertificateAtLast = t.shipStatus(ctx).Cert.NotAfter
		if err := t.waitUntilResolved(ctx, "word of what was dropped", t.a.FailEvery+10*time.Minute, t.unreportedDrops); err != nil {
			return err
		}
		t.settleAndFinish(ctx)
		return nil
	})
}

// waitUntilResolved waits until nothing is wrong any more.
func (t *absence) waitUntilResolved(ctx context.Context, what string, within time.Duration, wrong func() string) error {
	for since := t.elapsedTime(); ; {
		why := wrong()
		if why == "" {
			return nil
		}
		if t.elapsedTime()-since > within {
			return fmt.Errorf("wait for %s: not within %s: %s; the ship says: %+v", what, within, why, t.shipStatus(ctx))
		}
		if !engine.Pause(ctx, lookEvery) {
			return ctx.Err()
		}
	}
}

// certificateProblem says why the ship's certificate is of no use; "" where it is.
func (t *absence) certificateProblem() string {
	if end := t.shipStatus(context.Background()).Cert.NotAfter; !end.After(time.Now()) {
		return fmt.Sprintf("it ended at %s", end)
	}
	return ""
}

// unreportedDrops says of how many rows that the ship's journal dropped no gap row tells yet: it
// comes before the next row that there is room for.
func (t *absence) unreportedDrops() string {
	_, j := t.ship.Agent().SyncStatus()
	t.mu.Lock()
	told := droppedBy(t.rows[t.ship.Name])
	t.mu.Unlock()
	if told != j.Dropped {
		return fmt.Sprintf("gap rows tell of %d rows that were dropped, the journal of %d", told, j.Dropped)
	}
	return ""
}

// shipStatus is the ship as it shows itself on site.
func (t *absence) shipStatus(ctx context.Context) local.Status {
	a := t.ship.Agent()
	if a == nil {
		return local.Status{}
	}
	s, err := a.Agent().Status(ctx)
	if err != nil {
		t.recordHarnessFailure("ask %s: %v", t.ship.Name, err)
	}
	return s
}

// recordFaultBegin tells of one, and returns what tells of its end.
func (t *absence) recordFaultBegin(kind string, effects []check.Effect, targets ...string) (end func(hits uint64)) {
	t.faultCount++
	f := check.Fault{ID: t.faultCount, Kind: kind, Targets: targets, Effects: effects}
	t.judgeAndRecord(check.Observation{Fault: &f})
	return func(hits uint64) {
		over := f
		over.End, over.Hits = true, hits
		t.judgeAndRecord(check.Observation{Fault: &over})
	}
}
