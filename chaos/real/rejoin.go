package real

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"skerry/chaos/cluster"
	"skerry/chaos/proc"
	"skerry/client"
	"skerry/edge/swarm"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// Rejoin cuts many edges off, lets each journal rows, heals all links at once, and kills the leader
// during the replay. The hubs are processes; the edges live in this process and run simulated
// tasks.
type Rejoin struct {
	Ground // with the network of faultnet.NewPlain
	Edges  int
	Allocs int // number of jobs; each has one allocation on each edge
	// Transitions is the number of rows that each edge journals while it is cut off.
	Transitions int
	Seed        uint64        // draws the moment of the kill
	Cap         time.Duration // the edges' longest back-off; 0: their default
	HubFlags    []string
}

// rejoinHubs is the number of hubs in a rejoin.
const rejoinHubs = 3

// Maximum times of a rejoin's phases: far above the targets, so that a slow machine still
// gives results.
const (
	enrolBound  = 5 * time.Minute
	placeBound  = 5 * time.Minute
	absentBound = 3 * time.Minute
	replayBound = 5 * time.Minute
)

// rejoin is the state of a running Rejoin.
type rejoin struct {
	*fleetRun
	want  Rejoin
	swarm *swarm.Swarm

	edgesBefore    int64 // resident memory of this process, bytes
	healed, killed time.Time
	atCut          map[string]client.Metrics // metrics of the hubs when the edges were cut off
	healedAt       fleet.Index               // last index that the killed leader had applied before the heal
	before, after  fleet.Index               // last index of the killed leader, first index of its successor
}

// Run plays the scenario, prints the durations, and checks the invariants. The error is ErrViolated
// for a violation, and ErrVoid if the leader was not killed during the replay.
func (r Rejoin) Run(ctx context.Context) error {
	if r.Edges < 1 || r.Allocs < 1 || r.Transitions < 1 {
		return errors.New("a mass rejoin needs at least one edge, one allocation and one transition")
	}
	return r.runOnFleet(ctx, cluster.Config{Hubs: rejoinHubs, HubFlags: r.HubFlags}, func(s *fleetRun) error {
		run := &rejoin{fleetRun: s, want: r, edgesBefore: memory()}
		return s.withSwarm(ctx, swarm.Config{Edges: r.Edges, BackoffCap: r.Cap}, func(ctx context.Context, edges *swarm.Swarm) error {
			run.swarm = edges
			for _, step := range []func(context.Context) error{run.settleIn, run.partWays, run.comeBack, run.restartKilledHub, run.judgeRejoin} {
				if err := step(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// settleIn waits until the edges have joined, registers the jobs, and waits until all allocations run.
func (r *rejoin) settleIn(ctx context.Context) error {
	if _, err := r.sayHubs(ctx, "empty"); err != nil {
		return err
	}
	if err := r.awaitSwarm(ctx, r.swarm, enrolBound, "edges joined, all ready", time.Now(), allReady); err != nil {
		return err
	}
	began := time.Now()
	for i := range r.want.Allocs {
		if err := r.registerAtAnyHub(ctx, simulated(fleet.JobID(fmt.Sprintf("site-%02d", i)), r.want.Edges, r.want.Allocs)); err != nil {
			return err
		}
	}
	wanted := r.want.Edges * r.want.Allocs
	err := r.awaitSwarm(ctx, r.swarm, placeBound, fmt.Sprintf("%d allocations placed, all seen running", wanted), began,
		func(t swarm.Totals) bool { return t.Running == wanted && t.Replayed == t.Edges })
	if err != nil {
		return err
	}
	runtime.GC()
	goroutines := runtime.NumGoroutine()
	r.printLine("  this process: %d MiB before, %d MiB settled (%d KiB an edge); %d goroutines, %d an edge",
		r.edgesBefore>>20, memory()>>20, (memory()-r.edgesBefore)>>10/int64(r.want.Edges), goroutines, goroutines/r.want.Edges)
	_, err = r.sayHubs(ctx, "settled")
	return err
}

// simulated returns a job with one allocation on each edge; fit such jobs fill an edge.
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

// partWays cuts all links, waits until all hubs and edges have detected it, and makes the edges
// journal rows.
func (r *rejoin) partWays(ctx context.Context) error {
	r.swarm.Cut()
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
	r.sayDuration("cut off, all nodes disconnected", began)
	began = time.Now()
	if err := r.swarm.GenerateRows(ctx, r.want.Transitions); err != nil {
		return err
	}
	r.sayDuration(fmt.Sprintf("%d rows journaled by each edge", r.want.Transitions), began)
	r.atCut, err = r.sayHubs(ctx, "cut off")
	return err
}

// Bounds of the share of rows that are acknowledged when the leader is killed.
const (
	killAfter  = 0.2
	killBefore = 0.6
)

// comeBack heals all links, kills the leader in the middle of the replay, and waits until all rows
// are replayed.
func (r *rejoin) comeBack(ctx context.Context) error {
	leader, err := r.fleet.Leader(ctx)
	if err != nil {
		return err
	}
	share := killAfter + rand.New(rand.NewPCG(r.want.Seed, 0)).Float64()*(killBefore-killAfter)
	away := r.swarm.Totals()
	due := away.Rows - away.Acknowledged
	r.swarm.Heal()
	r.healed = time.Now()
	at := away.Acknowledged + uint64(share*float64(due))
	err = r.awaitSwarm(ctx, r.swarm, replayBound, "healed, the leader may be killed", r.healed, func(t swarm.Totals) bool { return t.Acknowledged >= at })
	if err != nil {
		return err
	}
	last, err := leader.Metrics(ctx)
	if err != nil {
		return err
	}
	leader.Kill()
	r.killed = time.Now()
	r.healedAt, r.before = fleet.Index(r.atCut[leader.Name][metricApplied]), fleet.Index(last[metricApplied])
	r.printLine("  %s, the leader, killed %s after the heal: %d of %d rows acknowledged", leader.Name,
		r.killed.Sub(r.healed).Round(time.Millisecond), r.swarm.Totals().Acknowledged-away.Acknowledged, due)
	if err := r.serviceAgain(ctx, leader); err != nil {
		return err
	}
	return r.awaitSwarm(ctx, r.swarm, replayBound, "healed, all replayed and ready", r.healed, func(t swarm.Totals) bool { return t.Replayed == t.Edges })
}

// serviceAgain waits until another hub leads and until it acknowledges rows, and prints the times
// since the leader's death.
func (r *rejoin) serviceAgain(ctx context.Context, dead *cluster.Hub) error {
	err := cluster.Eventually(ctx, quietBound, "another hub leads", func(ctx context.Context) string {
		for _, h := range r.fleet.Hubs {
			if h == dead {
				continue
			}
			if m, err := h.Metrics(ctx); err == nil && m["skerry_raft_leader"] == 1 {
				r.after = fleet.Index(m[metricApplied]) + 1
				return ""
			}
		}
		return "none does"
	})
	if err != nil {
		return err
	}
	r.sayDuration("leader killed, another one leads", r.killed)
	led := r.swarm.Totals().Acknowledged
	return r.awaitSwarm(ctx, r.swarm, quietBound, "leader killed, rows taken again", r.killed,
		func(t swarm.Totals) bool { return t.Acknowledged > led || t.Replayed == t.Edges })
}

// restartKilledHub prints the entries that the hubs applied during the replay, starts the killed hub,
// and waits until it is ready.
func (r *rejoin) restartKilledHub(ctx context.Context) error {
	after, err := r.sayHubs(ctx, "replayed")
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		r.printLine("  replay at %s: %s", name, entriesBetween(r.atCut[name], after[name]))
	}
	began := time.Now()
	if err := r.restartHubs(ctx); err != nil {
		return err
	}
	r.sayDuration("killed hub started again, ready", began)
	return nil
}

// Names of hubs' metrics.
const (
	metricApplied = "skerry_raft_applied_index"
	metricEntries = "skerry_raft_entries_total"
	metricBytes   = "skerry_raft_entry_bytes_total"
)

// sayHubs prints memory, sessions and CPU time of each running hub, and returns their metrics.
func (r *rejoin) sayHubs(ctx context.Context, phase string) (map[string]client.Metrics, error) {
	all := map[string]client.Metrics{}
	for _, h := range r.fleet.Hubs {
		if !h.Running() {
			continue
		}
		m, err := h.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		peak, err := proc.Peak(h.Pid())
		if err != nil {
			return nil, err
		}
		r.printLine("  %-9s %s: resident %4.0f MiB, peak %4d MiB, heap %4.0f MiB, stacks %3.0f MiB, %5.0f goroutines, %4.0f sessions, %5.1f s of CPU",
			phase, h.Name, m["process_resident_memory_bytes"]/(1<<20), peak>>20, m["go_memstats_heap_inuse_bytes"]/(1<<20),
			m["go_memstats_stack_inuse_bytes"]/(1<<20), m["go_goroutines"], m["skerry_edge_sessions"], m["process_cpu_seconds_total"])
		all[h.Name] = m
	}
	return all, nil
}

// entriesBetween lists the commands, with their number and size, that a hub applied between two
// readings of its metrics.
func entriesBetween(before, after client.Metrics) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(after)) {
		label, ok := strings.CutPrefix(key, metricEntries)
		if n := after[key] - before[key]; ok && n > 0 {
			kib := (after[metricBytes+label] - before[metricBytes+label]) / 1024
			parts = append(parts, fmt.Sprintf("%s %.0f (%.0f KiB)", strings.TrimSuffix(strings.TrimPrefix(label, `{command="`), `"}`), n, kib))
		}
	}
	return strings.Join(parts, ", ")
}

// memory returns the resident memory of this process in bytes; 0 if it cannot be read.
func memory() int64 {
	n, err := proc.Resident(os.Getpid())
	if err != nil {
		return 0
	}
	return n
}
