package real

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/history"
	"skerry/chaos/report"
	"skerry/chaos/schedule"
	"skerry/fleet"
)

// Rehearsal runs the plan of a rehearsal in virtual time on real processes. Both record the same
// kinds of observations, and the same code evaluates them.
type Rehearsal struct {
	Ground
	Name, Repeat string
	Jobs         []*fleet.Job
	Plan         schedule.Schedule            // only its topology, faults and length are used
	Meta         map[string]map[string]string // node metadata, by edge
	// Heartbeat times of hubs and the longest back-off of edges; 0: the production defaults.
	MinTTL, Grace, BackoffCap time.Duration
}

// watchEvery is the interval at which hubs and tasks are observed.
const watchEvery = 300 * time.Millisecond

// Run starts the fleet, runs the jobs and the plan's faults, and returns the evaluated observations.
func (r Rehearsal) Run(ctx context.Context) (seen *report.Rehearsal, err error) {
	r.printLine("running it on %d hubs and %d edges, files in %s", len(r.Plan.Topology.Hubs), len(r.Plan.Topology.Edges), r.Dir)
	if err := r.runOnFleet(ctx, r.clusterConfig(), func(s *fleetRun) error { return r.runAndRecord(ctx, s) }); err != nil {
		return nil, err
	}
	in, err := history.Open(filepath.Join(r.Dir, historyFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return report.Rehearse(in)
}

// clusterConfig returns the configuration of the plan's fleet.
func (r Rehearsal) clusterConfig() cluster.Config {
	t := r.Plan.Topology
	c := cluster.Config{Hubs: len(t.Hubs), Edges: len(t.Edges)}
	set := func(flags *[]string, name string, d time.Duration) {
		if d > 0 {
			*flags = append(*flags, name, d.String())
		}
	}
	set(&c.HubFlags, "--heartbeat-min-ttl", r.MinTTL)
	set(&c.HubFlags, "--heartbeat-grace", r.Grace)
	set(&c.EdgeFlags, "--backoff-cap", r.BackoffCap)
	c.EdgeFlagsOf = func(n int) []string { return edgeFlags(r.Meta[t.Edges[n-1].Name], t.Edges[n-1]) }
	return c
}

// edgeFlags returns the flags of a real edge for its resources, location and metadata in the plan.
// Attributes are always those of the real machine.
func edgeFlags(meta map[string]string, e schedule.Edge) []string {
	flags := []string{
		"--total-cpu", strconv.Itoa(cmp.Or(e.CPU, schedule.DefaultEdgeCPU)),
		"--total-memory", strconv.Itoa(cmp.Or(e.MemoryMB, schedule.DefaultEdgeMemoryMB)),
		"--site", e.Site,
	}
	if e.Datacenter != "" {
		flags = append(flags, "--datacenter", e.Datacenter)
	}
	if e.Pool != "" {
		flags = append(flags, "--node-pool", e.Pool)
	}
	for key, value := range meta {
		flags = append(flags, "--meta", key+"="+value)
	}
	return flags
}

// runAndRecord plays the plan when the fleet is ready, and writes the observations to a history. It
// judges no invariant.
func (r Rehearsal) runAndRecord(ctx context.Context, s *fleetRun) error {
	plan, err := r.realPlan()
	if err != nil {
		return err
	}
	if err := s.awaitFleet(ctx); err != nil {
		return err
	}
	c, err := newCampaignRun(s, CampaignConfig{Report: s.Dir, Name: r.Name, Repeat: r.Repeat, Scenario: &plan})
	if err != nil {
		return err
	}
	c.watch.Monitor = nil // there are too few observations for the invariants
	c.watch.Clock = func() time.Duration { return min(time.Since(c.began), plan.Length) }
	watching, stop := context.WithCancel(ctx)
	g, watching := errgroup.WithContext(watching)
	for _, h := range s.fleet.Hubs {
		g.Go(func() error { return c.watchHub(watching, h) })
	}
	for _, e := range s.fleet.Edges {
		g.Go(func() error { return c.watchTasks(watching, e) })
	}
	err = c.playSchedule(ctx, plan)
	stop()
	if err = errors.Join(err, g.Wait()); err != nil {
		return errors.Join(err, c.watch.History.Close())
	}
	c.watch.Write(history.Record{End: &history.End{Outcome: history.Pass, Wall: time.Since(c.began)}})
	return errors.Join(c.watch.Err(), c.watch.History.Close())
}

// realPlan returns the plan with the real jobs in place of the simulated ones, and without steps.
func (r Rehearsal) realPlan() (schedule.Schedule, error) {
	plan := r.Plan
	plan.Jobs, plan.Steps = nil, nil
	for _, job := range r.Jobs {
		text, err := json.Marshal(map[string]any{"Job": job})
		if err != nil {
			return plan, fmt.Errorf("encode job %s: %w", job.ID, err)
		}
		plan.Jobs = append(plan.Jobs, schedule.Job{ID: job.ID, HCL: string(text)})
	}
	return plan, nil
}

// watchHub records the state of a hub at each interval until ctx is done.
func (s *campaignRun) watchHub(ctx context.Context, h *cluster.Hub) error {
	for engine.Pause(ctx, watchEvery) {
		if shown, err := pollHubState(ctx, h); err == nil { // skip a hub that is down or whose state just changed
			s.watch.Observe(check.Observation{Hub: &shown})
		}
	}
	return nil
}

// watchTasks records the tasks that start or stop on an edge, from its processes, until ctx is done.
func (s *campaignRun) watchTasks(ctx context.Context, e *cluster.Edge) error {
	before := map[check.TaskKey]int{}
	for engine.Pause(ctx, watchEvery) {
		now, err := processes(e)
		if err != nil {
			return err
		}
		for _, change := range []struct {
			of, than map[check.TaskKey]int
			what     string
		}{{before, now, check.TaskStopped}, {now, before, check.TaskStarted}} {
			for task := range change.of {
				if change.than[task] > 0 {
					continue
				}
				s.watch.Observe(check.Observation{Task: &check.Task{Edge: e.Name, Alloc: task.Alloc, Task: task.Task, What: change.what}})
			}
		}
		before = now
	}
	return nil
}
