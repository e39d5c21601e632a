package virtual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

// Play is a schedule and the settings with which Run plays it.
type Play struct {
	Schedule schedule.Schedule `json:"-"`
	Name     string            // the scenario's name, or "seed N" for a drawn schedule
	Repeat   string            // the command that repeats the run
	Dir      string            // the directory of all files; Run makes it
	History  io.Writer         `json:"-"` // where the history is written; nil: nowhere
	Tuning   HubTuning
	// RaftStreams is the setting of Config with that name.
	RaftStreams bool
	LogLevel    slog.Level
	// Strict observes hubs and edges each second, which expectations need; otherwise
	// they are observed every ten seconds.
	Strict bool
	Fleet  Fleet
	// Found is called for each violation when it is detected, and must not block; may be nil.
	Found func(check.Violation) `json:"-"`
}

// Outcome is the result of a run: its summary, the violations, a verdict of each invariant, and
// how often each branch of the checkers was reached.
type Outcome struct {
	history.Run
	Found    []check.Violation
	Verdicts []check.Verdict
	Reached  map[check.Branch]uint64
}

// run is the state of one Play.Run. Callbacks of the cluster call its observe methods.
type run struct {
	Play
	s        schedule.Schedule
	c        *Cluster
	recorder *engine.Recorder
	expect   *engine.Expectations
	faults   *engine.Faults
	users    *engine.Users
	marks    *engine.SecretMarks
	searched *engine.SearchedWriter // the history's file; nil: there is none
	began    time.Time
	moves    atomic.Int64 // number of new addresses and clones so far; makes their names unique
	making   atomic.Bool  // the cluster is being started: the schedule's time has not begun
	ended    atomic.Bool  // the cluster is being closed: observations are dropped
	lasted   atomic.Int64 // the run's time when ended was set

	mu       sync.Mutex
	lastSeen map[string]memberSeen // last observation of each member
	// replaced are the edges that got the data of their clone (CloneEdge).
	replaced map[string]bool
	rows     map[string][]fleet.Transition // all rows observed in each edge's journal
	held     map[string]map[string]int     // last observation of each edge's variables
	// tokens is the last observation of each edge's identities.
	tokens map[string]map[check.TaskKey]time.Duration
	// revoked has when edges were told of their revocation.
	revoked map[string]time.Duration
	newest  fleet.Index // of the entries that hubs have applied
	broke   []string    // failures of the harness itself; each makes the run void
}

// Run plays the schedule and judges it. It must be called inside a bubble, and returns after the
// cluster was closed. Violations are in the outcome; an error is a failure of the harness.
func (p Play) Run(ctx context.Context) (Outcome, error) {
	began := wallTime()
	r, err := p.openRun()
	if err != nil {
		return Outcome{}, err
	}
	stop := collectAtRest(ctx, max(collectEvery, r.s.Length/collections))
	err = errors.Join(r.playSchedule(ctx), stop())
	return r.summarizeOutcome(wallTime()-began, err), errors.Join(err, r.recorder.History.Flush())
}

// openRun sleeps until the epoch and begins the run's history. It starts no cluster.
func (p Play) openRun() (*run, error) {
	for _, j := range p.Schedule.Jobs {
		if j.Driver != "" {
			return nil, fmt.Errorf("play job %s: its driver %s is supported on real processes only", j.ID, j.Driver)
		}
	}
	limits := p.monitorLimits()
	r := &run{
		Play: p, s: p.Schedule, expect: engine.NewExpectations(p.Schedule),
		lastSeen: map[string]memberSeen{}, replaced: map[string]bool{}, rows: map[string][]fleet.Transition{}, held: map[string]map[string]int{}, tokens: map[string]map[check.TaskKey]time.Duration{},
		revoked: map[string]time.Duration{},
	}
	r.marks = engine.NewSecretMarks()
	r.users = &engine.Users{Schedule: p.Schedule, Elapsed: r.elapsedTime, Observe: r.judgeAndRecord, Marks: r.marks}
	var file io.Writer
	if p.History != nil {
		r.searched = &engine.SearchedWriter{W: p.History, Marks: r.marks}
		file = r.searched
	}
	r.recorder = &engine.Recorder{Monitor: check.NewMonitor(limits), Clock: r.observationTime, Found: p.Found}
	r.faults = r.newFaults()
	time.Sleep(time.Until(epoch))
	var err error
	r.recorder.History, err = history.NewWriter(file, history.Header{
		Name: p.Name, Seed: r.s.Seed, Clock: history.Virtual, Start: time.Now(), Repeat: p.Repeat,
		Versions: map[string]string{"go": runtime.Version()},
		Hubs:     r.s.Topology.Hubs, Edges: edgeNames(r.s.Topology), Schedule: r.s.String(), Limits: limits,
	})
	return r, err
}

// startBound is the time after an agent's start in which tasks that a reboot ended have to run
// again, beside the start delay of their script.
const startBound = 10 * time.Second

// comeback is the time in which a fleet has to settle after an edge's longest pause of dialing.
const comeback = 15 * time.Minute

// monitorLimits returns the limits of the invariants that follow from the schedule and the fleet.
func (p Play) monitorLimits() check.Limits {
	l := check.Limits{Start: startBound, LongestTTL: p.Fleet.MinTTL}
	for _, j := range p.Schedule.Jobs {
		l.Start = max(l.Start, startBound+j.Task.StartDelay)
	}
	bounded := true // each edge's journal has a maximum size
	for _, e := range p.Schedule.Topology.Edges {
		if e.BackoffCap > 0 {
			l.Heal = max(l.Heal, e.BackoffCap+comeback)
		}
		bounded = bounded && e.JournalKiB > 0
		l.JournalBytes = max(l.JournalBytes, int64(e.JournalKiB)<<10)
	}
	if !bounded {
		l.JournalBytes = 0
	}
	for _, pool := range p.Schedule.Topology.Pools {
		l.LongestTTL = max(l.LongestTTL, pool.TTL)
	}
	return l
}

// edgeNames returns the names of the topology's edges.
func edgeNames(t schedule.Topology) []string {
	out := make([]string, len(t.Edges))
	for i, e := range t.Edges {
		out[i] = e.Name
	}
	return out
}

// playSchedule starts the cluster, plays faults, jobs and operations, waits until the fleet is
// quiet, has its final state judged, and closes the cluster.
func (r *run) playSchedule(ctx context.Context) (err error) {
	r.began = time.Now()
	r.making.Store(true)
	if r.c, err = Start(ctx, r.clusterConfig()); err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	defer func() {
		r.lasted.Store(int64(r.observationTime()))
		r.ended.Store(true)
		err = errors.Join(err, r.c.Close())
	}()
	for _, h := range r.c.Hubs {
		r.observeProcess(h.Name, false, check.ProcessStart)
	}
	for _, e := range r.c.Edges {
		r.observeProcess(e.Name, true, check.ProcessStart)
	}
	for _, h := range r.c.Hubs {
		r.users.Hubs = append(r.users.Hubs, h.Hub)
	}
	if err := r.awaitFleet(ctx); err != nil {
		return err
	}
	r.observeUsageRepeatedly(ctx)
	r.began = time.Now() // times of the schedule count from here
	r.making.Store(false)
	looking, stop := context.WithCancel(ctx)
	var watch errgroup.Group
	watch.Go(func() error { r.watchFleet(looking); return nil })
	defer func() { stop(); err = errors.Join(err, watch.Wait()) }()
	if err := r.playConcurrently(ctx); err != nil {
		return err
	}
	r.settleAndFinish(ctx)
	return nil
}

// playConcurrently plays faults, jobs and operations at the same time, until the schedule's
// length is over. It returns the first error of the harness.
func (r *run) playConcurrently(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, r.s.Length)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for i, f := range schedule.WithInducedFaults(r.s.Faults) {
		g.Go(func() error { return r.faults.Play(ctx, i+1, f) })
	}
	r.users.Play(ctx, g)
	g.Go(func() error { <-ctx.Done(); return nil })
	return g.Wait()
}

// clusterConfig returns the configuration of the schedule's cluster, with the run as observer.
func (r *run) clusterConfig() Config {
	cfg := Config{
		Dir: r.Dir, Hubs: r.s.Topology.Hubs, Seed: r.s.Seed, Tuning: r.Tuning, RaftStreams: r.RaftStreams, LogLevel: r.LogLevel,
		TemplatePoll: max(time.Minute, r.s.Length/looks), EdgeCertValidity: r.certValidity(), Prepare: r.preparePoolsAndLinks,
		MinTTL: r.Fleet.MinTTL, Grace: r.Fleet.Grace, BackoffCap: r.Fleet.BackoffCap,
		Taps: Observers{Applied: r.observeApplied, Task: r.observeTaskEvent, Refused: r.observeRefusal, Dial: r.observeDial, Received: r.observeMessage, Starting: r.observeStart, Answered: r.observeAnswer, Rejected: r.searchRefusal},
	}
	for _, e := range r.s.Topology.Edges {
		cfg.Edges = append(cfg.Edges, EdgeConfig{
			Name: e.Name, Datacenter: cmp.Or(e.Datacenter, schedule.DefaultDatacenter), NodePool: e.Pool,
			Site: e.Site, Meta: r.Fleet.Meta[e.Name], Attributes: r.Fleet.Attributes[e.Name],
			CPU: cmp.Or(e.CPU, schedule.DefaultEdgeCPU), MemoryMB: cmp.Or(e.MemoryMB, schedule.DefaultEdgeMemoryMB),
			JournalMaxBytes: int64(e.JournalKiB) << 10, BackoffCap: e.BackoffCap,
		})
	}
	return cfg
}

// Validity of edges' certificates: so short that they are renewed in every run; in a run with
// the fault CertExpired so short that they expire while their edge is cut off.
const (
	certValidity    = 45 * time.Minute
	certToBeExpired = 10 * time.Minute
)

// certValidity returns the validity of edges' certificates in this run.
func (r *run) certValidity() time.Duration {
	expires := slices.ContainsFunc(r.s.Faults, func(f schedule.Fault) bool { return f.Kind == schedule.CertExpired })
	if expires && r.Fleet.CertValidity == 0 {
		return certToBeExpired
	}
	return cmp.Or(r.Fleet.CertValidity, certValidity)
}

// awaitFleet waits up to ten minutes of the run's time until nothing is unsettled, and returns
// an error with the first unsettled thing if something still is.
func (r *run) awaitFleet(ctx context.Context) error {
	for range 600 {
		if why := r.firstUnsettled(); why == "" {
			return nil
		}
		if !engine.Pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("wait for the fleet: %s", r.firstUnsettled())
}

// elapsedTime returns the virtual time since the schedule's beginning; during the cluster's start,
// since that began.
func (r *run) elapsedTime() time.Duration { return time.Since(r.began) }

// observationTime returns the time for the record of an observation. During the cluster's start
// it is 0; while the cluster is closed it is the end of the run.
func (r *run) observationTime() time.Duration {
	switch {
	case r.ended.Load():
		return time.Duration(r.lasted.Load())
	case r.making.Load():
		return 0
	}
	return max(0, r.elapsedTime())
}

// summarizeOutcome writes the end of the history and returns the run's outcome: broken if err is
// set, violated for a violation or an unmet expectation, void if the harness failed, else pass.
func (r *run) summarizeOutcome(wall time.Duration, err error) Outcome {
	o := Outcome{Found: r.recorder.Monitor.Violations(), Verdicts: r.recorder.Monitor.Verdicts(), Reached: r.recorder.Monitor.Reached()}
	r.recorder.WriteVerdicts()
	if err := r.recorder.Err(); err != nil {
		r.recordHarnessFailure("record: %v", err)
	}
	end := history.End{Outcome: history.Pass, Wall: wall, Reasons: r.broke}
	for b, n := range o.Reached {
		r.recorder.Write(history.Record{Sometimes: &history.Sometimes{Name: string(b), Count: n}})
	}
	switch {
	case err != nil:
		end.Outcome, end.Reasons = history.Broken, append(end.Reasons, err.Error())
	case len(o.Found) > 0:
		end.Outcome = history.Violated
	case len(r.broke) > 0:
		end.Outcome = history.Void
	}
	if unmet := r.expect.Unmet(); len(unmet) > 0 && end.Outcome == history.Pass {
		end.Outcome, end.Reasons = history.Violated, unmet
	}
	r.recorder.Write(history.Record{End: &end})
	o.Run = r.recorder.History.Run()
	return o
}
