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

// Rehearsal runs on real processes what was rehearsed in virtual time. What is observed is of
// the same kinds in both, and the same code makes facts of it.
type Rehearsal struct {
	Ground
	Name, Repeat string
	Jobs         []*fleet.Job
	Plan         schedule.Schedule            // its topology, its faults and its length
	Meta         map[string]map[string]string // of edges
	// Times of heartbeats and of edges' attempts to reach a hub; 0: those of production.
	MinTTL, Grace, BackoffCap time.Duration
}

// watchEvery is how often hubs and tasks are looked at.
const watchEvery = 300 * time.Millisecond

// Run runs the jobs, breaks what the plan breaks, and is what was to be seen of it.
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

// clusterConfig is the fleet that was rehearsed.
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

// edgeFlags say of a real edge what the description of the fleet says. Attributes are
// what the machine has.
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

// runAndRecord runs the plan once the fleet is ready, and writes down what is to be seen.
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
	c.watch.Monitor = nil // too little is seen to be judged
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

// realPlan is the plan with the jobs as they are, without updates.
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

func (s *campaignRun) watchHub(ctx context.Context, h *cluster.Hub) error {
	for engine.Pause(ctx, watchEvery) {
		if shown, err := pollHubState(ctx, h); err == nil { // one that moves on, or is down, shows nothing
			s.watch.Observe(check.Observation{Hub: &shown})
		}
	}
	return nil
}

// watchTasks tells of tasks that begin or end on an edge, as its processes show it.
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
