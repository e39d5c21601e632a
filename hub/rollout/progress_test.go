package rollout_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/rollout"
	"skerry/hub/state"
)

// What is counted change by change is what is counted of all allocations, whatever happens
// to them.
func TestProgressCountedByChangesIsThatOfAllAllocations(t *testing.T) {
	for seed := range uint64(20) {
		c := newCluster(t)
		draw := rand.New(rand.NewPCG(seed, 1))
		d := c.registerWithDeployment("web", "1", func(g *fleet.TaskGroup, s *fleet.DeploymentState) {
			g.Count, s.DesiredTotal, s.DesiredCanaries = 50, 50, 3
			s.ProgressDeadline = time.Hour
		})
		var all []fleet.AllocID
		progress := rollout.NewProgress()
		try := func(cmd state.Command) { // it may be refused
			if _, err := c.Apply(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
		}
		for range 300 {
			pick := func() fleet.AllocID { return all[draw.IntN(len(all))] }
			switch n := draw.IntN(8); {
			case n < 2 || len(all) == 0:
				all = append(all, c.placeAlloc(d, draw.IntN(3) == 0))
			case n == 2:
				try(state.AllocHealth{DeploymentID: d, Healthy: []fleet.AllocID{pick()}, Now: c.nowNano()})
			case n == 3:
				try(state.AllocHealth{DeploymentID: d, Unhealthy: []fleet.AllocID{pick()}, Now: c.nowNano()})
			case n == 4:
				try(state.AllocHealth{DeploymentID: d, Reschedule: []fleet.AllocID{pick()}, Now: c.nowNano()})
			case n == 5:
				a, _ := c.View().Alloc(pick())
				stop := *a
				stop.DesiredStatus = fleet.DesiredStop
				try(state.Plan{Now: c.nowNano(), Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{a.NodeID: {stop}}}})
			case n == 6:
				a, _ := c.View().Alloc(pick())
				leaves := *a
				leaves.DeploymentID = "another"
				try(state.Plan{Now: c.nowNano(), Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{a.NodeID: {leaves}}}})
			default:
				try(state.DeploymentPromote{DeploymentID: d, Now: c.nowNano()})
			}
			if draw.IntN(4) == 0 {
				continue // several changes before the next look
			}
			progress = progress.Update(c.View(), d)
			whole := rollout.NewProgress(slices.Collect(c.View().AllocsByDeployment(d))...)
			if got, want := progress.String(), whole.String(); got != want {
				t.Fatalf("seed %d: counted by changes\n%s\nof all\n%s", seed, got, want)
			}
		}
	}
}

// restored is a state as a snapshot brings it back.
func restored(t *testing.T, store *state.Store) *state.Store {
	t.Helper()
	var snapshot bytes.Buffer
	again := state.New()
	if err := errors.Join(store.Persist(&snapshot), again.Restore(&snapshot)); err != nil {
		t.Fatal(err)
	}
	return again
}

// A state that was read from a snapshot remembers no changes: all is read.
func TestChangesBeforeASnapshotAreNotKnown(t *testing.T) {
	c := newCluster(t)
	d := c.registerWithDeployment("web", "1", nil)
	c.placeAlloc(d, false)
	before := c.View().Index()
	c.placeAlloc(d, false)
	if changes, known := c.View().RolloutChanges(d, before); !known || len(changes) != 1 {
		t.Errorf("%d changes, known: %t", len(changes), known)
	}
	again := restored(t, c.Store)
	if a, b := c.View().Digest(), again.View().Digest(); a != b {
		t.Errorf("the state has the digest %s, and %s when it was read from its snapshot", a, b)
	}
	if _, known := again.View().RolloutChanges(d, before); known {
		t.Error("changes from before the snapshot are said to be known")
	}
	if changes, known := again.View().RolloutChanges(d, again.View().Index()); !known || len(changes) != 0 {
		t.Errorf("after the snapshot: %d changes, known: %t", len(changes), known)
	}
}

// largeDeployment is a deployment with so many placed allocations, and what a watcher has counted of it.
type largeDeployment struct {
	*cluster
	id       fleet.DeploymentID
	allocs   []fleet.AllocID
	progress *rollout.Progress
	whole    int // how often a look read all allocations of the job
}

func newLargeDeployment(tb testing.TB, many int) *largeDeployment {
	l := &largeDeployment{cluster: newCluster(tb)}
	l.id = l.registerWithDeployment("web", "1", func(g *fleet.TaskGroup, s *fleet.DeploymentState) {
		g.Count, s.DesiredTotal, s.ProgressDeadline = many, many, time.Hour
	})
	var placed []fleet.Alloc
	j, _ := l.View().Job("default", "web")
	for range many {
		id := fleet.AllocID(l.nextUUID("alloc"))
		l.allocs = append(l.allocs, id)
		placed = append(placed, fleet.Alloc{
			ID: id, Namespace: "default", NodeID: node, JobID: j.ID, JobVersion: j.Version, JobHash: j.SpecHash, TaskGroup: "web",
			Name: "web.web[0]", DeploymentID: l.id, DeploymentStatus: &fleet.AllocDeployment{},
		})
	}
	l.mustCommit(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: placed}}, Now: l.nowNano()})
	l.progress = rollout.NewProgress().Update(l.View(), l.id)
	return l
}

// markNextHealthy makes the allocation i healthy.
func (l *largeDeployment) markNextHealthy(i int) {
	l.mustCommit(state.AllocHealth{DeploymentID: l.id, Healthy: []fleet.AllocID{l.allocs[i%len(l.allocs)]}, Now: l.nowNano()})
}

// look does what a watcher does after a change.
func (l *largeDeployment) look() {
	view := l.View()
	d, _ := view.Deployment(l.id)
	before := l.progress
	l.progress = l.progress.Update(view, l.id)
	if l.progress != before {
		l.whole++ // all were counted anew
	}
	p := rollout.SnapshotOf(view, d, allSuit, time.Now())
	whole := p.Whole
	p.Whole = func() []*fleet.Alloc { l.whole++; return whole() }
	p.Progress, p.Seen, p.NewEval = l.progress, 1<<60, func() fleet.EvalID { return "e" }
	rollout.Next(p)
}

// A look reads the allocation that changed, however many the deployment has: it neither reads all of them nor makes more
// objects.
func TestALookReadsWhatChanged(t *testing.T) {
	objects := map[int]uint64{}
	for _, many := range []int{100, 10_000} {
		l := newLargeDeployment(t, many)
		for i := range 10 {
			before := l.View().Index()
			l.markNextHealthy(i)
			if changes, known := l.View().RolloutChanges(l.id, before); !known || len(changes) != 1 {
				t.Fatalf("%d allocations: one change is read as %d, known: %t", many, len(changes), known)
			}
			var from, to runtime.MemStats
			runtime.ReadMemStats(&from)
			l.look()
			runtime.ReadMemStats(&to)
			objects[many] += to.Mallocs - from.Mallocs
		}
		if l.whole > 0 {
			t.Errorf("%d allocations: 10 looks read all of them %d times", many, l.whole)
		}
	}
	if objects[10_000] > 2*objects[100] {
		t.Errorf("10 looks make %d objects for 10,000 allocations, and %d for 100", objects[10_000], objects[100])
	}
}

// BenchmarkLook is what a watcher does when one allocation of a deployment became healthy:
// the time for 50,000 is that for 100. Whole is what it would be if all were read.
func BenchmarkLook(b *testing.B) {
	for _, many := range []int{100, 1_000, 10_000, 50_000} {
		l := newLargeDeployment(b, many)
		b.Run(fmt.Sprintf("changed/%d", many), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				l.markNextHealthy(i)
				b.StartTimer()
				l.look()
			}
		})
		b.Run(fmt.Sprintf("whole/%d", many), func(b *testing.B) {
			for b.Loop() {
				rollout.NewProgress(slices.Collect(l.View().AllocsByDeployment(l.id))...)
			}
		})
	}
}
