package real

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/edge/swarm"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// Rejoin cuts many edges off, lets each journal what happens meanwhile, heals all
// links at once, and kills the leading hub while the history comes in. The hubs are
// processes, the edges live in this one and run simulated tasks.
type Rejoin struct {
	Ground // a faultnet.Plain
	Edges  int
	Allocs int // of each edge: one of each of so many jobs
	// Transitions is how many rows each edge journals while it is cut off.
	Transitions int
	Seed        uint64        // draws the moment of the kill
	Cap         time.Duration // the edges' longest back-off; 0: their default
	HubFlags    []string
	Report      string // folder of the history and the report; "": none are written
	// Repeat and Versions are what the history says of how it was made.
	Repeat   string
	Versions map[string]string
}

// rejoinHubs is how many hubs a rejoin has.
const rejoinHubs = 3

// Bounds of a rejoin's phases: far beyond what is wanted, so that a slow machine
// gives figures rather than nothing.
const (
	enrolBound  = 5 * time.Minute
	placeBound  = 5 * time.Minute
	absentBound = 3 * time.Minute
	replayBound = 5 * time.Minute
)

// rejoin is a run of it.
type rejoin struct {
	*fleetRun
	want    Rejoin
	swarm   *swarm.Swarm
	figures *rejoinFigures
	record  *rejoinRecord
}

// Run runs the scenario and judges it.
func (r Rejoin) Run(ctx context.Context) error {
	if r.Edges < 1 || r.Allocs < 1 || r.Transitions < 1 {
		return errors.New("a mass rejoin needs at least one edge, one allocation and one transition")
	}
	record, err := newRejoinRecord(r)
	if err != nil {
		return err
	}
	err = r.runOnFleet(ctx, size{hubs: rejoinHubs, hubFlags: r.HubFlags}, func(s *fleetRun) error {
		run := &rejoin{fleetRun: s, want: r, figures: newRejoinFigures(r.Ground, record), record: record}
		for _, h := range s.fleet.Hubs {
			record.writeHubProcess(h.Name, check.ProcessStart)
		}
		run.figures.edgesBefore = memory()
		edges := swarm.Config{Edges: r.Edges, BackoffCap: r.Cap}
		return s.withSwarm(ctx, edges, run.figures.reportDuration, func(ctx context.Context, edges *swarm.Swarm) error {
			run.swarm = edges
			for _, step := range []func(context.Context) error{run.settleIn, run.partWays, run.comeBack, run.restartKilledHub, run.judgeRejoin} {
				if err := step(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return r.finishReport(record.dir, record.Recorder, err)
}

// settleIn has the edges join and run their allocations.
func (r *rejoin) settleIn(ctx context.Context) error {
	began := time.Now()
	if err := r.figures.sampleHubMetrics(ctx, phaseEmpty, r.fleet.Hubs...); err != nil {
		return err
	}
	if err := r.waitForSwarm(ctx, enrolBound, "all edges have joined", func(t swarm.Totals) bool { return t.Ready == t.Edges }); err != nil {
		return err
	}
	r.figures.reportDuration("edges joined, all ready", time.Since(began))
	began = time.Now()
	for i := range r.want.Allocs {
		if err := r.registerAtAnyHub(ctx, simulated(fleet.JobID(fmt.Sprintf("site-%02d", i)), r.want.Edges, r.want.Allocs)); err != nil {
			return err
		}
	}
	wanted := r.want.Edges * r.want.Allocs
	err := r.waitForSwarm(ctx, placeBound, "all allocations run", func(t swarm.Totals) bool { return t.Running == wanted && t.Replayed == t.Edges })
	if err != nil {
		return err
	}
	r.figures.reportDuration(fmt.Sprintf("%d allocations placed, all seen running", wanted), time.Since(began))
	runtime.GC()
	r.figures.edgesSettled, r.figures.goroutines = memory(), runtime.NumGoroutine()
	return r.figures.sampleHubMetrics(ctx, phaseSettled, r.fleet.Hubs...)
}

// simulated is a job with one allocation on each edge, of which so many fit.
func simulated(id fleet.JobID, edges, fit int) *fleet.Job {
	job := &fleet.Job{
		ID: id, Type: fleet.JobTypeService,
		Constraints: []fleet.Constraint{{Operand: fleet.OpDistinctHosts}},
		TaskGroups: []fleet.TaskGroup{{
			Name: "main", Count: edges,
			Tasks: []fleet.Task{{Name: "main", Driver: swarm.Driver, Resources: fleet.TaskResources{Resources: fleet.Resources{CPU: 4000 / fit, MemoryMB: 4096 / fit}}}},
		}},
	}
	validate.FillDefaults(job)
	return job
}

// partWays cuts all links, waits until every hub and every edge has noticed, and lets
// things happen.
func (r *rejoin) partWays(ctx context.Context) error {
	r.record.writeEdgeStates(r.swarm)
	r.swarm.Cut()
	r.record.writeCutFault(false, 0)
	began := time.Now()
	err := cluster.Eventually(ctx, absentBound, "all nodes are disconnected", func(ctx context.Context) string {
		if n := r.swarm.Totals().Connected; n > 0 {
			return fmt.Sprintf("%d edges have not noticed", n)
		}
		for _, h := range r.fleet.Hubs {
			m, err := h.Metrics(ctx)
			if err != nil {
				return err.Error()
			}
			if n := m[`skerry_nodes{status="disconnected"}`]; int(n) != r.want.Edges {
				return fmt.Sprintf("%s: %.0f of %d", h.Name, n, r.want.Edges)
			}
		}
		return ""
	})
	if err != nil {
		return err
	}
	r.figures.reportDuration("cut off, all nodes disconnected", time.Since(began))
	began = time.Now()
	if err := r.swarm.GenerateRows(ctx, r.want.Transitions); err != nil {
		return err
	}
	r.figures.reportDuration(fmt.Sprintf("%d rows journaled by each edge", r.want.Transitions), time.Since(began))
	return r.figures.sampleHubMetrics(ctx, phaseCut, r.fleet.Hubs...)
}

// Shares of the rows that have to be at the cluster, at least and at most, when the
// leader is killed.
const (
	killAfter  = 0.2
	killBefore = 0.6
)

// comeBack heals all links, kills the leader in the middle of the replay, and waits
// until everything is in.
func (r *rejoin) comeBack(ctx context.Context) error {
	leader, err := r.fleet.Leader(ctx)
	if err != nil {
		return err
	}
	share := killAfter + rand.New(rand.NewPCG(r.want.Seed, 0)).Float64()*(killBefore-killAfter)
	had := map[string]fleet.Seq{}
	for _, e := range r.swarm.Edges() {
		had[e.Name()] = e.SyncStatus().Acknowledged
	}
	before := r.swarm.Totals()
	r.figures.due = before.Rows - before.Acknowledged
	watching, stop := context.WithCancel(ctx)
	watched := r.figures.sampleSwarm(watching, r.swarm)
	defer func() { stop(); <-watched }()
	r.swarm.Heal()
	r.record.writeCutFault(true, r.want.Edges)
	r.figures.healed, r.figures.cpuHealed = time.Now(), cpu()
	at := before.Acknowledged + uint64(share*float64(r.figures.due))
	if err := r.waitForSwarm(ctx, replayBound, "the leader may be killed", func(t swarm.Totals) bool { return t.Acknowledged >= at }); err != nil {
		return err
	}
	if err := r.figures.killLeaderMidReplay(ctx, leader, r.swarm, had); err != nil {
		return err
	}
	r.record.writeHubProcess(leader.Name, check.ProcessKill)
	r.record.writeKillFault(leader.Name, false)
	if err := r.serviceAgain(ctx, leader); err != nil {
		return err
	}
	err = r.waitForSwarm(ctx, replayBound, "all history is in", func(t swarm.Totals) bool { return t.Replayed == t.Edges })
	if err != nil {
		return err
	}
	r.figures.reportDuration("healed, all replayed and ready", time.Since(r.figures.healed))
	r.figures.edgesReplayed, r.figures.cpuReplayed = memory(), cpu()
	return r.figures.sampleHubMetrics(ctx, phaseReplayed, r.fleet.Hubs...)
}

// serviceAgain measures from the leader's death until another hub leads, and until
// rows are taken again.
func (r *rejoin) serviceAgain(ctx context.Context, dead *cluster.Hub) error {
	err := cluster.Eventually(ctx, quietBound, "another hub leads", func(ctx context.Context) string {
		for _, h := range r.fleet.Hubs {
			if h == dead {
				continue
			}
			if m, err := h.Metrics(ctx); err == nil && m[metricLeads] == 1 {
				r.figures.after = fleet.Index(m[metricApplied]) + 1
				return ""
			}
		}
		return "none does"
	})
	if err != nil {
		return err
	}
	r.figures.reportDuration("leader killed, another one leads", time.Since(r.figures.killed))
	led := r.swarm.Totals().Acknowledged
	if err := r.waitForSwarm(ctx, quietBound, "rows are taken again", func(t swarm.Totals) bool { return t.Acknowledged > led || t.Replayed == t.Edges }); err != nil {
		return err
	}
	r.figures.reportDuration("leader killed, rows taken again", time.Since(r.figures.killed))
	return nil
}

// restartKilledHub starts the hub that was killed, and waits until it has caught up.
func (r *rejoin) restartKilledHub(ctx context.Context) error {
	began := time.Now()
	for _, h := range r.fleet.Hubs {
		if h.Running() {
			continue
		}
		if err := h.Start(); err != nil {
			return err
		}
		r.record.writeKillFault(h.Name, true)
		r.record.writeHubProcess(h.Name, check.ProcessStart)
		if err := h.AwaitReady(ctx); err != nil {
			return err
		}
	}
	r.figures.reportDuration("killed hub started again, ready", time.Since(began))
	return nil
}

// waitForSwarm waits for the swarm, for a while.
func (r *rejoin) waitForSwarm(ctx context.Context, bound time.Duration, what string, done func(swarm.Totals) bool) error {
	return awaitSwarm(ctx, r.swarm, bound, what, done)
}
