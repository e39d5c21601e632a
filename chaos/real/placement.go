package real

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"skerry/chaos/cluster"
	"skerry/edge/swarm"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// Placement starts many edges at once, registers one large job, and measures the duration of each
// step. The hubs are processes; the edges live in this process and run simulated tasks.
type Placement struct {
	Ground       // with the network of faultnet.NewPlain
	Hubs         int
	Edges        int
	CPU          int           // MHz of each edge
	Count        int           // number of the job's allocations, each of 100 MHz and 10 MB
	ReadyWithin  time.Duration // longest time from the start of the edges until all are ready; 0: not limited
	PlacedWithin time.Duration // longest time from the registration until all allocations are placed; 0: not limited
	HubFlags     []string      // added to the hubs' command lines
	Table        string        // file whose table "placement-EDGES-CPU" is replaced by the results; "": none
}

// Resources of each allocation of a Placement.
const (
	placementCPU      = 100
	placementMemoryMB = 10
)

// Run starts the fleet, measures, and prints each duration beside its limit. The error is ErrViolated if a duration
// exceeds its limit.
func (p Placement) Run(ctx context.Context) error {
	if p.Hubs < 1 || p.Edges < 1 || p.CPU < 1 || p.Count < 1 {
		return errors.New("a placement needs at least one hub, one edge, one MHz and one allocation")
	}
	if p.ReadyWithin < 0 || p.PlacedWithin < 0 {
		return errors.New("the limits of a placement are not negative; 0 is none")
	}
	if room := p.Edges * (p.CPU / placementCPU); p.Count > room {
		return fmt.Errorf("%d allocations of %d MHz do not fit: %d edges of %d MHz have room for %d", p.Count, placementCPU, p.Edges, p.CPU, room)
	}
	p.printLine("%d edges of %d MHz, one job of %d allocations, %d hubs; all on %d cores", p.Edges, p.CPU, p.Count, p.Hubs, runtime.NumCPU())
	edges := swarm.Config{Edges: p.Edges, Resources: fleet.Resources{
		CPU: p.CPU, MemoryMB: placementMemoryMB * p.CPU / placementCPU, DiskMB: max(32768, p.CPU),
	}}
	defer collectLessGarbage()()
	found := &placementFigures{Ground: p.Ground, table: p.newTable("what", "measured", "at most")}
	err := p.runOnFleet(ctx, cluster.Config{Hubs: p.Hubs, HubFlags: p.HubFlags}, func(s *fleetRun) error {
		return s.withSwarm(ctx, edges, func(ctx context.Context, edges *swarm.Swarm) error { return p.measurePhases(ctx, s, edges, found) })
	})
	if err != nil {
		return err
	}
	about := fmt.Sprintf("%d edges of %d MHz, one job of %d allocations, hubs: %d", p.Edges, p.CPU, p.Count, p.Hubs)
	return errors.Join(judgeFigures(found.all), found.table.replaceIn(p.Table, fmt.Sprintf("placement-%d-%d", p.Edges, p.CPU), about))
}

// placementFigures are the durations of a Placement, each beside its limit.
type placementFigures struct {
	Ground
	table *figureTable
	all   []figure
}

// addDuration prints how long something took beside its limit (0: none), and adds a row to the table.
func (f *placementFigures) addDuration(what string, took, limit time.Duration) {
	most := "-"
	if limit > 0 {
		most = seconds(limit)
	}
	f.printLine("  %-44s %9s   (at most %s)", what, seconds(took), most)
	f.table.addRow(what, seconds(took), most)
	f.all = append(f.all, inSeconds(what, took, limit))
}

// measurePhases measures until the edges are ready, the job is registered, all allocations are
// placed, and the hubs report all of them as running.
func (p Placement) measurePhases(ctx context.Context, s *fleetRun, edges *swarm.Swarm, found *placementFigures) error {
	began, ready := time.Now(), "edges joined together, all ready"
	if err := waitForSwarm(ctx, edges, enrolBound, ready, allReady); err != nil {
		return err
	}
	found.addDuration(ready, time.Since(began), p.ReadyWithin)
	job := p.largeJob()
	began = time.Now()
	if err := s.registerAtAnyHub(ctx, job); err != nil {
		return err
	}
	found.addDuration("job registered", time.Since(began), 0)
	hub := s.fleet.Hubs[0]
	placed, err := p.waitUntilPlaced(ctx, hub, job.ID)
	if err != nil {
		return err
	}
	seen := time.Since(began)
	found.addDuration(fmt.Sprintf("%d allocations placed", p.Count), placed.Sub(began), p.PlacedWithin)
	found.addDuration("a client has seen them placed", seen, 0)
	running := "all seen running by the hubs"
	err = waitForSwarm(ctx, edges, placeBound, running, func(t swarm.Totals) bool { return t.Running == p.Count && t.Replayed == t.Edges })
	if err != nil {
		return err
	}
	found.addDuration(running, time.Since(began), 0)
	return p.saySpread(ctx, hub, found.table)
}

// largeJob returns a job with one group of p.Count small allocations.
func (p Placement) largeJob() *fleet.Job {
	job := &fleet.Job{
		ID: "many", Type: fleet.JobTypeService,
		TaskGroups: []fleet.TaskGroup{{
			Name: "main", Count: p.Count, EphemeralDisk: fleet.EphemeralDisk{SizeMB: 10},
			Tasks: []fleet.Task{{
				Name: "main", Driver: swarm.Driver, LogConfig: fleet.LogConfig{MaxFiles: 1, MaxFileSizeMB: 1},
				Resources: fleet.TaskResources{Resources: fleet.Resources{CPU: placementCPU, MemoryMB: placementMemoryMB}},
			}},
		}},
	}
	validate.FillDefaults(job)
	return job
}

// waitUntilPlaced waits until an evaluation of a job has placed all its allocations. It returns when the leader began to commit the
// end of that evaluation, which for a large job is an entry of its own. This process also runs the edges, and sees it up to seconds
// later. It asks the hub with blocking queries: a pause between questions would count as time until then.
func (p Placement) waitUntilPlaced(ctx context.Context, hub *cluster.Hub, id fleet.JobID) (placed time.Time, err error) {
	err = cluster.Eventually(ctx, placeBound, "all allocations are placed", func(ctx context.Context) string {
		var index fleet.Index
		for watch := hub.Watch(&index); ; {
			evals, err := watch.JobEvals(ctx, id)
			if err != nil {
				return err.Error()
			}
			if placed = endOfPlacement(evals); !placed.IsZero() {
				return ""
			}
		}
	})
	return placed, err
}

// endOfPlacement returns when the first evaluation of a job ended that left nothing to be placed, or zero if none has.
func endOfPlacement(evals []fleet.Evaluation) (end time.Time) {
	for _, e := range evals {
		queued := e.BlockedEval != ""
		for _, n := range e.QueuedAllocations {
			queued = queued || n > 0
		}
		if at := time.Unix(0, e.ModifyTime); e.Status == fleet.EvalComplete && !queued && (end.IsZero() || at.Before(end)) {
			end = at
		}
	}
	return end
}

// saySpread prints the number of edges with allocations and the largest number on one edge, and adds them to the table.
func (p Placement) saySpread(ctx context.Context, hub *cluster.Hub, table *figureTable) error {
	all, err := hub.Allocs(ctx)
	if err != nil {
		return err
	}
	on, fullest := map[fleet.NodeID]int{}, 0
	for _, a := range all {
		on[a.NodeID]++
		fullest = max(fullest, on[a.NodeID])
	}
	p.printLine("  on %d edges; the fullest has %d", len(on), fullest)
	table.addRow("edges with allocations", fmt.Sprint(len(on)), "-")
	table.addRow("allocations on the fullest edge", fmt.Sprint(fullest), "-")
	return nil
}
