package real

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/history"
	"skerry/chaos/rehearse"
	"skerry/chaos/report"
	"skerry/chaos/schedule"
)

// Rehearsal rehearses jobs in virtual time, then runs them on real processes that
// suffer the same, and compares. What is observed is of the same kinds in both, and
// the same code makes facts of it.
type Rehearsal struct {
	Ground
	Config    rehearse.Config
	Program   []string      // command line of a rehearse.Work
	Tolerance time.Duration // of times; 0: DefaultTolerance
}

// DefaultTolerance is how far apart a rehearsal and the real run may be: an absence is
// noticed somewhere between a heartbeat's TTL and its grace after it, and real machines
// are busy.
const DefaultTolerance = 10 * time.Second

// watchEvery is how often hubs and tasks are looked at.
const watchEvery = 300 * time.Millisecond

// Run rehearses, runs, and compares; it fails with ErrViolated where the two differ.
func (r Rehearsal) Run(ctx context.Context) error {
	plan, err := r.Config.Schedule()
	if err != nil {
		return err
	}
	r.printLine("rehearsing %s of %s in virtual time", plan.Length, r.Config.Name)
	rehearsed, err := r.Config.Run(ctx, r.Program)
	if err != nil {
		return err
	}
	r.printLine("running it on %d hubs and %d edges, files in %s", len(plan.Topology.Hubs), len(plan.Topology.Edges), r.Dir)
	path := filepath.Join(r.Dir, historyFile)
	if err := r.runOnFleet(ctx, r.rehearsedFleetSize(plan), func(s *fleetRun) error {
		return (&performance{fleetRun: s, cfg: r.Config, plan: plan}).runAndRecord(ctx, path)
	}); err != nil {
		return err
	}
	real, err := seen(path)
	if err != nil {
		return err
	}
	return r.compareWithReal(rehearsed.Rehearsal, real)
}

func (r Rehearsal) compareWithReal(rehearsed, real *report.Rehearsal) error {
	tolerance := r.Tolerance
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	c := rehearse.Compare(rehearsed, real, tolerance)
	if err := c.Print(r.Out); err != nil {
		return err
	}
	if apart := c.Differences(); len(apart) > 0 {
		return fmt.Errorf("%w: a rehearsal and the real run differ in %d of %d facts: %s", ErrViolated, len(apart), len(c.Lines), apart[0])
	}
	r.printLine("all %d facts agree, times within %s", len(c.Lines), tolerance)
	return nil
}

// rehearsedFleetSize is the fleet that was rehearsed.
func (r Rehearsal) rehearsedFleetSize(plan schedule.Schedule) size {
	t := plan.Topology
	sz := size{hubs: len(t.Hubs), edges: len(t.Edges)}
	set := func(flags *[]string, name string, d time.Duration) {
		if d > 0 {
			*flags = append(*flags, name, d.String())
		}
	}
	set(&sz.hubFlags, "--heartbeat-min-ttl", r.Config.Times.MinTTL)
	set(&sz.hubFlags, "--heartbeat-grace", r.Config.Times.Grace)
	set(&sz.edgeFlags, "--backoff-cap", r.Config.Times.BackoffCap)
	sz.dress = func(c *cluster.Config) {
		c.HubName, c.EdgeName = schedule.HubName, schedule.EdgeName
		c.EdgeFlagsOf = func(n int) []string { return edgeFlags(r.Config.Fleet, t.Edges[n-1]) }
	}
	return sz
}

// edgeFlags say of a real edge what the description of the fleet says. Attributes are
// what the machine has.
func edgeFlags(f rehearse.Fleet, e schedule.Edge) []string {
	flags := []string{
		"--total-cpu", strconv.Itoa(orElse(e.CPU, schedule.DefaultEdgeCPU)),
		"--total-memory", strconv.Itoa(orElse(e.MemoryMB, schedule.DefaultEdgeMemoryMB)),
		"--site", e.Site,
	}
	if e.Datacenter != "" {
		flags = append(flags, "--datacenter", e.Datacenter)
	}
	if e.Pool != "" {
		flags = append(flags, "--node-pool", e.Pool)
	}
	for key, value := range f.Meta[e.Name] {
		flags = append(flags, "--meta", key+"="+value)
	}
	return flags
}

func orElse(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// seen reads what a run left.
func seen(path string) (_ *report.Rehearsal, err error) {
	in, err := history.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return report.Rehearse(in)
}

// performance is the real run of what was rehearsed.
type performance struct {
	*fleetRun
	cfg   rehearse.Config
	plan  schedule.Schedule
	out   *history.Writer
	began time.Time
}

// runAndRecord runs the jobs, breaks what the plan breaks, and writes down what is to be seen.
func (p *performance) runAndRecord(ctx context.Context, path string) (err error) {
	if err := cluster.Eventually(ctx, p.settleBound, "the fleet is ready", func(ctx context.Context) string {
		return firstUnsettled(ctx, p.fleet)
	}); err != nil {
		return err
	}
	p.began = time.Now()
	header := history.Header{Name: p.cfg.Name, Clock: history.Real, Start: p.began, Repeat: p.cfg.Repeat, Hubs: p.plan.Topology.Hubs}
	for _, e := range p.plan.Topology.Edges {
		header.Edges = append(header.Edges, e.Name)
	}
	if p.out, err = history.Create(path, header); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.out.Close()) }()
	if err := p.runPlanConcurrently(ctx); err != nil {
		return err
	}
	return p.out.Write(history.Record{Observation: p.stampObservation(check.Observation{}), End: &history.End{Outcome: history.Pass, Wall: time.Since(p.began)}})
}

// runPlanConcurrently lets everything happen side by side, for as long as the plan is.
func (p *performance) runPlanConcurrently(ctx context.Context) error {
	over, cancel := context.WithTimeout(ctx, p.plan.Length)
	defer cancel()
	failures := make(chan error, len(p.fleet.Hubs)+len(p.fleet.Edges)+len(p.plan.Faults)+len(p.cfg.Jobs))
	var all sync.WaitGroup
	begin := func(do func(context.Context) error) {
		all.Go(func() {
			if err := do(over); err != nil && over.Err() == nil {
				failures <- err
				cancel()
			}
		})
	}
	for _, h := range p.fleet.Hubs {
		begin(func(ctx context.Context) error { return p.watchHub(ctx, h) })
	}
	for _, e := range p.fleet.Edges {
		begin(func(ctx context.Context) error { return p.watchTasks(ctx, e) })
	}
	for i, f := range p.plan.Faults {
		begin(func(ctx context.Context) error { return p.playPlannedFault(ctx, i+1, f) })
	}
	for _, job := range p.cfg.Jobs {
		if err := p.registerAtAnyHub(over, job); err != nil {
			cancel()
			all.Wait()
			return err
		}
	}
	<-over.Done()
	all.Wait()
	close(failures)
	return errors.Join(<-failures, ctx.Err())
}

// stampObservation is an observation of now.
func (p *performance) stampObservation(o check.Observation) check.Observation {
	o.At = min(time.Since(p.began), p.plan.Length)
	return o
}

func (p *performance) writeObservation(o check.Observation) error {
	return p.out.Write(history.Record{Observation: p.stampObservation(o)})
}

func (p *performance) watchHub(ctx context.Context, h *cluster.Hub) error {
	for pause(ctx, watchEvery) == nil {
		if shown, err := pollHubState(ctx, h); err == nil { // one that moves on, or is down, shows nothing
			if err := p.writeObservation(check.Observation{Hub: &shown}); err != nil {
				return err
			}
		}
	}
	return nil
}

// watchTasks tells of tasks that begin or end on an edge, as its processes show it.
func (p *performance) watchTasks(ctx context.Context, e *cluster.Edge) error {
	before := map[check.TaskKey]int{}
	for pause(ctx, watchEvery) == nil {
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
				if err := p.writeObservation(check.Observation{Task: &check.Task{Edge: e.Name, Alloc: task.Alloc, Task: task.Task, What: change.what}}); err != nil {
					return err
				}
			}
		}
		before = now
	}
	return nil
}

// playPlannedFault breaks an edge or its link, and mends it.
func (p *performance) playPlannedFault(ctx context.Context, id int, f schedule.Fault) error {
	if pause(ctx, f.At-time.Since(p.began)) != nil {
		return nil
	}
	targets := p.plan.Topology.EdgesOf(f)
	told := check.Fault{ID: id, Kind: string(f.Kind), Targets: targets}
	if err := p.writeObservation(check.Observation{Fault: &told}); err != nil {
		return err
	}
	var victims []*cluster.Edge
	for _, e := range p.fleet.Edges {
		for _, name := range targets {
			if e.Name == name {
				victims = append(victims, e)
			}
		}
	}
	for _, e := range victims {
		if err := injectEdgeFault(e, f.Kind); err != nil {
			return err
		}
	}
	_ = pause(ctx, f.For) // whatever ends it, what is broken is mended
	for _, e := range victims {
		if err := mendEdge(e, f.Kind); err != nil {
			return err
		}
	}
	told.End, told.Hits = true, uint64(len(victims))
	return p.writeObservation(check.Observation{Fault: &told})
}

func injectEdgeFault(e *cluster.Edge, kind schedule.Kind) error {
	switch kind {
	case schedule.LinkCut:
		return e.Cut()
	case schedule.EdgeKill:
		e.Kill()
		return nil
	case schedule.EdgeReboot:
		return e.Shutdown()
	case schedule.PowerCut:
		return e.PowerCut()
	}
	return fmt.Errorf("break %s: a real rehearsal knows no %s", e.Name, kind)
}

func mendEdge(e *cluster.Edge, kind schedule.Kind) error {
	switch kind {
	case schedule.LinkCut:
		return e.Heal()
	case schedule.EdgeKill:
		return e.Start()
	}
	return e.Boot()
}
