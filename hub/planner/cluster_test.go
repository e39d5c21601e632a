package planner_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"skerry/fleet"
	"skerry/hub/planner"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
	"skerry/syncproto"
)

// cluster is a log of one hub with a planner on it.
type cluster struct {
	*testing.T
	*statetest.Log
	planner *planner.Planner

	mu              sync.Mutex
	seq             int
	plans           []state.Plan
	unknownOutcomes []state.Command // proposed, with an unknown outcome, not yet applied
	barrier         int

	// gate, where it is set, decides what becomes of a plan's command before it is
	// applied: an error is an unknown outcome.
	gate func(state.Plan) error
}

var errOutcomeUnknown = errors.New("leadership lost while committing")

// Apply is the log. It may lose a command's outcome, and apply it later or never.
func (c *cluster) Apply(ctx context.Context, cmd state.Command) (state.Result, error) {
	if p, ok := cmd.(state.Plan); ok && c.gate != nil {
		if err := c.gate(p); err != nil {
			c.mu.Lock()
			c.unknownOutcomes = append(c.unknownOutcomes, cmd)
			c.mu.Unlock()
			return state.Result{}, err
		}
	}
	return c.Log.Apply(ctx, cmd)
}

func (c *cluster) recordPlan(_ fleet.Index, cmd state.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := cmd.(state.Plan); ok {
		c.plans = append(c.plans, p)
	}
}

// countPlans returns the number of plans that were applied.
func (c *cluster) countPlans() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.plans)
}

// Barrier applies what was in doubt, or not: the log has decided.
func (c *cluster) Barrier(ctx context.Context) error {
	c.mu.Lock()
	c.barrier++
	unknown := c.unknownOutcomes
	c.unknownOutcomes = nil
	c.mu.Unlock()
	for _, cmd := range unknown {
		if _, err := c.Log.Apply(ctx, cmd); err != nil {
			return err
		}
	}
	return nil
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, Log: statetest.NewLog()}
	c.Applied = c.recordPlan
	c.planner = c.newPlanner(planner.Config{})
	return c
}

func (c *cluster) newPlanner(cfg planner.Config) *planner.Planner {
	c.Helper()
	cfg.State, cfg.Applier, cfg.Barrier = c.Store, c, c.Barrier
	p, err := planner.New(cfg)
	if err != nil {
		c.Fatal(err)
	}
	return p
}

// startPlanner runs the planner until the test, or the function that is returned, ends it.
func (c *cluster) startPlanner() (stop func()) {
	c.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.planner.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.Errorf("run: %v", err)
		}
	})
	c.Cleanup(stop)
	// A plan without anything in it is answered as soon as plans are taken.
	probe := fleet.Plan{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{"none": nil}}
	for {
		_, err := c.planner.Submit(context.Background(), probe)
		if fleet.CodeOf(err) != fleet.CodeNotLeader {
			return stop
		}
		runtime.Gosched()
	}
}

func (c *cluster) mustApplyEntry(cmd state.Command) state.Result {
	c.Helper()
	return c.MustApply(c.T, cmd)
}

func nodeID(name string) fleet.NodeID { return fleet.NodeID(fleet.DeriveUUID("node", name)) }

// addReadyNode makes a ready node with room for cpu.
func (c *cluster) addReadyNode(name string, cpu int) fleet.NodeID {
	c.Helper()
	id := nodeID(name)
	c.mustApplyEntry(state.SessionOpen{NodeID: id, Session: 1, Now: 1, Node: &fleet.Node{
		ID: id, Name: name, Resources: fleet.Resources{CPU: cpu, MemoryMB: 100_000},
	}})
	return id
}

func (c *cluster) mustRegisterJob(id fleet.JobID) *fleet.Job {
	c.Helper()
	c.mustApplyEntry(state.JobRegister{Job: &fleet.Job{
		Namespace: "default", ID: id, Type: fleet.JobTypeService, Priority: 50,
		TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 1}},
	}})
	j, _ := c.View().Job("default", id)
	return j
}

func (c *cluster) newPendingAlloc(j *fleet.Job, node fleet.NodeID, cpu int) fleet.Alloc {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	return fleet.Alloc{
		ID: fleet.AllocID(fleet.DeriveUUID("alloc", fmt.Sprint(c.seq))), Namespace: j.Namespace, JobID: j.ID, Job: j,
		JobVersion: j.Version, JobHash: j.SpecHash, TaskGroup: "web", NodeID: node, Name: "x",
		AllocatedResources: fleet.Resources{CPU: cpu, MemoryMB: 10}, DesiredStatus: fleet.DesiredRun,
		ClientStatus: fleet.ClientPending,
	}
}

func byNode(allocs ...fleet.Alloc) map[fleet.NodeID][]fleet.Alloc {
	m := map[fleet.NodeID][]fleet.Alloc{}
	for _, a := range allocs {
		m[a.NodeID] = append(m[a.NodeID], a)
	}
	return m
}

// planOfPlacements is a plan of new allocations, on the state as it is.
func (c *cluster) planOfPlacements(j *fleet.Job, allocs ...fleet.Alloc) fleet.Plan {
	return fleet.Plan{EvalID: "e1", Job: j, Priority: 50, SnapshotIndex: c.View().Index(), NodeAllocation: byNode(allocs...)}
}

func (c *cluster) planOfUpdates(j *fleet.Job, allocs ...fleet.Alloc) fleet.Plan {
	return fleet.Plan{EvalID: "e1", Job: j, Priority: 50, SnapshotIndex: c.View().Index(), NodeUpdate: byNode(allocs...)}
}

// mustSubmitPlan hands a plan in that is not refused as a whole.
func (c *cluster) mustSubmitPlan(p fleet.Plan) fleet.PlanResult {
	c.Helper()
	res, err := c.planner.Submit(c.Context(), p)
	if err != nil {
		c.Fatalf("submit: %v", err)
	}
	return res
}

func (c *cluster) allocExists(a fleet.Alloc) bool {
	_, ok := c.View().Alloc(a.ID)
	return ok
}

// reportRunning has the edge report that an allocation runs.
func (c *cluster) reportRunning(n fleet.NodeID, id fleet.AllocID) {
	c.Helper()
	row, err := syncproto.EncodeRow(fleet.Transition{Seq: 1, Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning})
	if err != nil {
		c.Fatal(err)
	}
	res := c.mustApplyEntry(state.AllocUpdates{Batches: []state.NodeRows{{NodeID: n, Epoch: 1, First: 1, Rows: [][]byte{row}}}})
	if res.Updates[0].Code != "" {
		c.Fatalf("report: %+v", res.Updates[0])
	}
}
