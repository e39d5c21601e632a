package planner_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"skerry/fleet"
	"skerry/hub/planner"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
)

func TestNew(t *testing.T) {
	c := &cluster{T: t, Log: statetest.NewLog()}
	for name, cfg := range map[string]planner.Config{
		"no state":       {Applier: c, Barrier: c.Barrier},
		"no log":         {State: c.Store, Barrier: c.Barrier},
		"no barrier":     {State: c.Store, Applier: c},
		"negative depth": {State: c.Store, Applier: c, Barrier: c.Barrier, Depth: -1},
	} {
		if _, err := planner.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestSubmitCommits(t *testing.T) {
	c := newCluster(t)
	n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
	c.startPlanner()
	a := c.newPendingAlloc(j, n, 500)
	p := c.planOfPlacements(j, a)
	p.Evals = []fleet.Evaluation{{ID: "e1", Namespace: "default", JobID: "shop", Status: fleet.EvalComplete}}
	res := c.mustSubmitPlan(p)
	if !res.Full() || res.AllocIndex != c.View().Index() || res.RefreshIndex != 0 || len(res.NodeAllocation[n]) != 1 {
		t.Fatalf("result: %+v", res)
	}
	if e, ok := c.View().Eval("e1"); !c.allocExists(a) || !ok || e.ModifyIndex != res.AllocIndex {
		t.Fatal("the allocation and the end of the evaluation are not in one entry")
	}
	if res := c.mustSubmitPlan(fleet.Plan{EvalID: "e2"}); !res.Full() || res.AllocIndex != 0 {
		t.Fatalf("an empty plan: %+v", res)
	}
}

// E43: what does not fit is left out, and nothing of it where all is wanted or
// nothing.
func TestPartial(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all at once %t", all), func(t *testing.T) {
			c := newCluster(t)
			room, full, j := c.addReadyNode("room", 1000), c.addReadyNode("full", 400), c.mustRegisterJob("shop")
			c.startPlanner()
			fits, not := c.newPendingAlloc(j, room, 500), c.newPendingAlloc(j, full, 500)
			later := fleet.Evaluation{ID: "later", Namespace: "default", JobID: "shop", Status: fleet.EvalPending}
			fits.FollowupEvalID = later.ID
			p := c.planOfPlacements(j, fits, not)
			p.AllAtOnce = all
			p.Deployment = &fleet.Deployment{ID: "d1", Namespace: "default", JobID: "shop", Status: fleet.DeploymentRunning}
			p.Evals = []fleet.Evaluation{
				later,
				{ID: "other", Namespace: "default", JobID: "shop", Status: fleet.EvalPending},
				{ID: "blocked", Namespace: "default", JobID: "shop", Status: fleet.EvalBlocked},
				{ID: "e1", Namespace: "default", JobID: "shop", Status: fleet.EvalComplete},
			}
			res := c.mustSubmitPlan(p)
			if res.Full() || res.Rejected[full] != "cpu exhausted" || res.RefreshIndex < p.SnapshotIndex {
				t.Fatalf("result: %+v", res)
			}
			if c.allocExists(fits) == all || c.allocExists(not) {
				t.Fatalf("committed: %t, %t", c.allocExists(fits), c.allocExists(not))
			}
			if _, began := c.View().Deployment("d1"); began == all {
				t.Errorf("the deployment of what was committed began: %t", began)
			}
			if !all && res.RefreshIndex < res.AllocIndex {
				t.Fatalf("look again at %d, committed in %d", res.RefreshIndex, res.AllocIndex)
			}
			for id, want := range map[fleet.EvalID]bool{"later": !all, "other": false, "blocked": false, "e1": false} {
				if _, ok := c.View().Eval(id); ok != want {
					t.Errorf("evaluation %s was stored: %t, want %t", id, ok, want)
				}
			}
		})
	}
}

// E44, A52: which writes a node takes in which state.
func TestNodeStates(t *testing.T) {
	nodes := map[string]func(*cluster) fleet.NodeID{
		"ready": func(c *cluster) fleet.NodeID { return nodeID("n1") },
		"full": func(c *cluster) fleet.NodeID {
			c.mustApplyEntry(state.NodeRegister{Node: fleet.Node{ID: nodeID("n1"), Resources: fleet.Resources{CPU: 100, MemoryMB: 10}}})
			return nodeID("n1")
		},
		"ineligible": func(c *cluster) fleet.NodeID {
			c.mustApplyEntry(state.NodeEligibility{NodeID: nodeID("n1"), Eligibility: fleet.NodeIneligible})
			return nodeID("n1")
		},
		"disconnected": func(c *cluster) fleet.NodeID {
			c.mustApplyEntry(state.NodeStatus{Now: 5, Nodes: []state.NodeMissed{{NodeID: nodeID("n1"), Epoch: 1}}})
			return nodeID("n1")
		},
		"down": func(c *cluster) fleet.NodeID {
			c.mustApplyEntry(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: fleet.DisconnectNomad}})
			c.mustApplyEntry(state.NodeStatus{Now: 5, Nodes: []state.NodeMissed{{NodeID: nodeID("n1"), Epoch: 1}}})
			return nodeID("n1")
		},
	}
	writes := map[string]func(*cluster, *fleet.Job, fleet.Alloc) fleet.Plan{
		"new": func(c *cluster, j *fleet.Job, old fleet.Alloc) fleet.Plan {
			return c.planOfPlacements(j, c.newPendingAlloc(j, old.NodeID, 50))
		},
		"in place": func(c *cluster, j *fleet.Job, old fleet.Alloc) fleet.Plan {
			old.DesiredDescription = "in place"
			return c.planOfPlacements(j, old)
		},
		"stop": func(c *cluster, j *fleet.Job, old fleet.Alloc) fleet.Plan {
			old.DesiredStatus = fleet.DesiredStop
			return c.planOfUpdates(j, old)
		},
		"unknown": func(c *cluster, j *fleet.Job, old fleet.Alloc) fleet.Plan {
			old.ClientStatus = fleet.ClientUnknown
			return c.planOfUpdates(j, old)
		},
		"lost": func(c *cluster, j *fleet.Job, old fleet.Alloc) fleet.Plan {
			old.ClientStatus, old.DesiredStatus = fleet.ClientLost, fleet.DesiredStop
			return c.planOfUpdates(j, old)
		},
	}
	for node, taken := range map[string]string{
		"ready":        "new, in place, stop, lost",
		"full":         "in place, stop, lost",
		"ineligible":   "in place, stop, lost",
		"disconnected": "stop, unknown, lost",
		"down":         "stop, unknown, lost",
	} {
		for write, plan := range writes {
			t.Run(node+"/"+write, func(t *testing.T) {
				c := newCluster(t)
				n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
				c.startPlanner()
				a := c.newPendingAlloc(j, n, 100)
				a.ClientStatus = fleet.ClientPending
				c.mustSubmitPlan(c.planOfPlacements(j, a))
				c.reportRunning(n, a.ID)
				nodes[node](c)
				old, _ := c.View().Alloc(a.ID)
				res := c.mustSubmitPlan(plan(c, j, *old))
				if want := strings.Contains(taken, write); res.Full() != want {
					t.Fatalf("taken: %t, want %t; %v", res.Full(), want, res.Rejected)
				}
			})
		}
	}
	t.Run("no such node", func(t *testing.T) {
		c := newCluster(t)
		j := c.mustRegisterJob("shop")
		c.startPlanner()
		if res := c.mustSubmitPlan(c.planOfPlacements(j, c.newPendingAlloc(j, "nosuch", 1))); res.Rejected["nosuch"] != "the node does not exist" {
			t.Fatalf("result: %+v", res)
		}
	})
}

// A stop frees nothing until the edge has confirmed it.
func TestStopFreesNothing(t *testing.T) {
	c := newCluster(t)
	n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
	c.startPlanner()
	old := c.newPendingAlloc(j, n, 800)
	c.mustSubmitPlan(c.planOfPlacements(j, old))
	stop := old
	stop.DesiredStatus = fleet.DesiredStop
	p := c.planOfPlacements(j, c.newPendingAlloc(j, n, 800))
	p.NodeUpdate = byNode(stop)
	if res := c.mustSubmitPlan(p); res.Rejected[n] != "cpu exhausted" {
		t.Fatalf("result: %+v", res)
	}
}

// What replaces an allocation is not committed where its stop is rejected with its node.
func TestAReplacementNeedsItsStop(t *testing.T) {
	c := newCluster(t)
	n1, n2, j := c.addReadyNode("n1", 1000), c.addReadyNode("n2", 1000), c.mustRegisterJob("shop")
	c.startPlanner()
	old := c.newPendingAlloc(j, n1, 800)
	c.mustSubmitPlan(c.planOfPlacements(j, old))
	stop := old
	stop.DesiredStatus = fleet.DesiredStop
	replacement, other, tooMuch := c.newPendingAlloc(j, n2, 100), c.newPendingAlloc(j, n2, 100), c.newPendingAlloc(j, n1, 800)
	replacement.PreviousAllocation = old.ID
	p := c.planOfPlacements(j, replacement, other, tooMuch)
	p.NodeUpdate = byNode(stop)
	res := c.mustSubmitPlan(p)
	if res.Rejected[n1] != "cpu exhausted" || len(res.NodeUpdate) != 0 {
		t.Fatalf("result: %+v", res)
	}
	if c.allocExists(replacement) || !c.allocExists(other) {
		t.Errorf("the replacement was committed: %t, what stands alone: %t", c.allocExists(replacement), c.allocExists(other))
	}
}

// Plans that are being committed count, and two for the last free place do not
// both get it.
func TestPlansInFlightCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n, a, b := c.addReadyNode("n1", 1000), c.mustRegisterJob("a"), c.mustRegisterJob("b")
		hold := make(chan struct{})
		c.gate = func(state.Plan) error { <-hold; return nil }
		stop := c.startPlanner()
		defer stop()
		results := make(chan fleet.PlanResult, 2)
		for _, j := range []*fleet.Job{a, b} {
			p := c.planOfPlacements(j, c.newPendingAlloc(j, n, 600))
			go func() { results <- c.mustSubmitPlan(p) }()
			synctest.Wait()
		}
		// The second is answered while the first is still being committed.
		if res := <-results; res.Rejected[n] != "cpu exhausted" {
			t.Fatalf("second plan: %+v", res)
		}
		close(hold)
		if res := <-results; !res.Full() {
			t.Fatalf("first plan: %+v", res)
		}
	})
}

// Commits overlap, up to the depth.
func TestCommitsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.planner = c.newPlanner(planner.Config{Depth: 3})
		n := c.addReadyNode("n1", 1000)
		hold := make(chan struct{})
		var mu sync.Mutex
		under := 0
		c.gate = func(state.Plan) error {
			mu.Lock()
			under++
			mu.Unlock()
			<-hold
			return nil
		}
		stop := c.startPlanner()
		defer stop()
		results := make(chan fleet.PlanResult, 5)
		for i := range 5 {
			j := c.mustRegisterJob(fleet.JobID(fmt.Sprint("job-", i)))
			p := c.planOfPlacements(j, c.newPendingAlloc(j, n, 10))
			go func() { results <- c.mustSubmitPlan(p) }()
			synctest.Wait()
		}
		if under != 3 || c.planner.Stats().Waiting != 1 {
			t.Fatalf("%d commits at once, %d plans wait", under, c.planner.Stats().Waiting)
		}
		close(hold)
		for range 5 {
			if res := <-results; !res.Full() {
				t.Fatalf("result: %+v", res)
			}
		}
	})
}

// A commit whose outcome is not known counts until a barrier says what became of
// it.
func TestCommitInDoubt(t *testing.T) {
	c := newCluster(t)
	n, a, b := c.addReadyNode("n1", 1000), c.mustRegisterJob("a"), c.mustRegisterJob("b")
	c.startPlanner()
	c.gate = func(state.Plan) error { return errOutcomeUnknown }
	stale := c.planOfPlacements(a, c.newPendingAlloc(a, n, 600))
	if _, err := c.planner.Submit(t.Context(), stale); fleet.CodeOf(err) != fleet.CodeUnavailable {
		t.Fatalf("submit: %v", err)
	}
	c.gate = nil
	if res := c.mustSubmitPlan(c.planOfPlacements(b, c.newPendingAlloc(b, n, 600))); res.Rejected[n] != "cpu exhausted" {
		t.Fatalf("result: %+v", res)
	}
	if c.barrier != 1 {
		t.Fatalf("%d barriers", c.barrier)
	}
	if res := c.mustSubmitPlan(c.planOfPlacements(b, c.newPendingAlloc(b, n, 400))); !res.Full() || c.barrier != 1 {
		t.Fatalf("result: %+v after %d barriers", res, c.barrier)
	}
	// And the same plan again, on the picture before it was applied, is refused.
	if res, err := c.planner.Submit(t.Context(), stale); err != nil || res.Refused == "" || res.RefreshIndex <= stale.SnapshotIndex {
		t.Fatalf("submit again: %+v, %v", res, err)
	}
}

// A plan on a picture from before another plan of its job is refused, and so is
// one of an evaluation that is over.
func TestSuperseded(t *testing.T) {
	c := newCluster(t)
	n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
	c.startPlanner()
	old := c.planOfPlacements(j, c.newPendingAlloc(j, n, 10))
	c.mustSubmitPlan(c.planOfPlacements(j, c.newPendingAlloc(j, n, 10)))
	last := c.View().Index()
	if res, err := c.planner.Submit(t.Context(), old); err != nil || res.Full() || res.Refused == "" || res.RefreshIndex != last {
		t.Fatalf("an older picture: %+v, %v", res, err)
	}
	if got := c.planner.Stats(); got.Refused != 1 || got.Partial != 0 {
		t.Fatalf("one plan was refused: %+v", got)
	}
	old.SnapshotIndex = c.View().Index()
	c.mustApplyEntry(state.Evals{Evals: []fleet.Evaluation{{ID: "e1", Namespace: "default", JobID: "shop", Status: fleet.EvalComplete}}})
	if _, err := c.planner.Submit(t.Context(), old); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Fatalf("an evaluation that is over: %v", err)
	}
	if c.allocExists(old.NodeAllocation[n][0]) {
		t.Fatal("it was committed")
	}
}

// The node came back while the scheduler thought: what it concluded is refused.
func TestNodeCameBack(t *testing.T) {
	c := newCluster(t)
	n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
	c.startPlanner()
	a := c.newPendingAlloc(j, n, 10)
	c.mustSubmitPlan(c.planOfPlacements(j, a))
	c.reportRunning(n, a.ID)
	c.mustApplyEntry(state.NodeStatus{Now: 5, Nodes: []state.NodeMissed{{NodeID: n, Epoch: 1}}})
	old, _ := c.View().Alloc(a.ID)
	gone := *old
	gone.ClientStatus = fleet.ClientUnknown
	p := c.planOfUpdates(j, gone)
	c.mustApplyEntry(state.SessionOpen{NodeID: n, Session: 2, Head: 1, Now: 6})
	if res := c.mustSubmitPlan(p); !strings.Contains(res.Rejected[n], "ready again") || res.RefreshIndex != c.View().Index() {
		t.Fatalf("result: %+v", res)
	}
}

// Large plans take several entries; the evaluation ends in the last, which has nothing else.
func TestLargePlan(t *testing.T) {
	c := newCluster(t)
	j := c.mustRegisterJob("shop")
	c.startPlanner()
	var allocs []fleet.Alloc
	for i := range 50 {
		n := c.addReadyNode(fmt.Sprint("n", i), 1000)
		for range 50 {
			allocs = append(allocs, c.newPendingAlloc(j, n, 1))
		}
	}
	p := c.planOfPlacements(j, allocs...)
	p.Evals = []fleet.Evaluation{
		{ID: "later", Namespace: "default", JobID: "shop", Status: fleet.EvalPending},
		{ID: "e1", Namespace: "default", JobID: "shop", Status: fleet.EvalComplete},
	}
	if res := c.mustSubmitPlan(p); !res.Full() || res.AllocIndex != c.View().Index() {
		t.Fatalf("result: %v at %d", res.Rejected, res.AllocIndex)
	}
	if len(c.plans) != 4 || len(c.plans[0].Evals) != 1 || c.plans[0].Evals[0].ID != "later" || c.plans[3].Evals[0].ID != "e1" || len(c.plans[3].Result.NodeAllocation) > 0 {
		t.Fatalf("%d entries", len(c.plans))
	}
	for _, a := range allocs {
		if !c.allocExists(a) {
			t.Fatal("an allocation is missing")
		}
	}
}

// What the edge said of an allocation does not travel in a plan, and a job that
// was purged meanwhile does.
func TestEntryIsLean(t *testing.T) {
	c := newCluster(t)
	n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
	c.startPlanner()
	a := c.newPendingAlloc(j, n, 10)
	c.mustSubmitPlan(c.planOfPlacements(j, a))
	old := a
	old.TaskStates = map[string]fleet.TaskState{"web": {State: fleet.TaskRunning}}
	old.Metrics = &fleet.AllocMetric{NodesEvaluated: 1}
	old.DesiredStatus, old.Retired = fleet.DesiredStop, true
	c.mustApplyEntry(state.JobDeregister{Namespace: "default", ID: "shop", Purge: true})
	b := c.newPendingAlloc(j, n, 10)
	p := c.planOfPlacements(j, b)
	p.NodeUpdate = byNode(old)
	c.mustSubmitPlan(p)
	last := c.plans[len(c.plans)-1]
	sent := last.Result.NodeUpdate[n][0]
	if sent.TaskStates != nil || sent.Metrics != nil || sent.DesiredStatus != fleet.DesiredStop || !sent.Retired {
		t.Fatalf("sent: %+v", sent)
	}
	if len(last.Jobs) != 1 || len(c.plans[0].Jobs) != 0 || !c.allocExists(b) {
		t.Fatalf("jobs that travelled: %d, %d", len(c.plans[0].Jobs), len(last.Jobs))
	}
}

// deliveries is a broker of one delivery.
type deliveries struct {
	token           string
	paused, resumed int
}

func (d *deliveries) Pause(id fleet.EvalID, token string) error {
	if id == "" {
		return nil // the probe of lead
	}
	d.paused++
	if token != d.token {
		return fleet.Errorf(fleet.CodeConflict, "not with this worker")
	}
	return nil
}

func (d *deliveries) Resume(id fleet.EvalID, _ string) error {
	if id != "" {
		d.resumed++
	}
	return nil
}

func TestDeliveryMustHold(t *testing.T) {
	c := newCluster(t)
	n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
	d := &deliveries{token: "right"}
	c.planner = c.newPlanner(planner.Config{Deliveries: d})
	c.startPlanner()
	p := c.planOfPlacements(j, c.newPendingAlloc(j, n, 10))
	p.EvalToken = "wrong"
	if _, err := c.planner.Submit(t.Context(), p); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Fatalf("submit: %v", err)
	}
	if c.allocExists(p.NodeAllocation[n][0]) || d.resumed != 0 {
		t.Fatal("a plan of a lost delivery was committed")
	}
	p.EvalToken = "right"
	c.mustSubmitPlan(p)
	if d.paused != 2 || d.resumed != 1 {
		t.Fatalf("paused %d times, resumed %d times", d.paused, d.resumed)
	}
}

// Evaluations that come without a plan are committed once: what a worker says of
// one that is over by then, and of others with it, is refused.
func TestEvaluationsAlone(t *testing.T) {
	c := newCluster(t)
	c.startPlanner()
	c.mustRegisterJob("shop")
	c.mustApplyEntry(state.Evals{Evals: []fleet.Evaluation{
		{ID: "e1", Namespace: "default", JobID: "shop", Status: fleet.EvalPending},
		{ID: "later", Namespace: "default", JobID: "shop", Status: fleet.EvalPending},
	}})
	ended := func(id fleet.EvalID, status string) fleet.Evaluation {
		e, _ := c.View().Eval(id)
		done := *e
		done.Status = status
		return done
	}
	late := fleet.Plan{EvalID: "e1", Evals: []fleet.Evaluation{ended("later", fleet.EvalCanceled), ended("e1", fleet.EvalComplete)}}
	if res := c.mustSubmitPlan(fleet.Plan{EvalID: "e1", Evals: []fleet.Evaluation{ended("e1", fleet.EvalComplete)}}); !res.Full() {
		t.Fatalf("rejected: %v", res.Rejected)
	}
	if e, _ := c.View().Eval("e1"); e.Status != fleet.EvalComplete {
		t.Fatalf("the evaluation is %s", e.Status)
	}
	if _, err := c.planner.Submit(t.Context(), late); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Errorf("the end of what is over: %v", err)
	}
	if e, _ := c.View().Eval("later"); e.Status != fleet.EvalPending {
		t.Errorf("the evaluation that others wait for is %s", e.Status)
	}
}

func TestPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.planner = c.newPlanner(planner.Config{Depth: 1})
		n := c.addReadyNode("n1", 1000)
		hold := make(chan struct{})
		c.gate = func(state.Plan) error { <-hold; return nil }
		stop := c.startPlanner()
		defer stop()
		var wg sync.WaitGroup
		for i, priority := range []int{50, 50, 10, 90, 10} {
			id := fleet.JobID(fmt.Sprint("job-", i))
			j := c.mustRegisterJob(id)
			p := c.planOfPlacements(j, c.newPendingAlloc(j, n, 1))
			p.Priority, p.EvalID = priority, fleet.EvalID(id)
			wg.Go(func() { c.mustSubmitPlan(p) })
			synctest.Wait()
		}
		// A plan whose worker has gone is not committed.
		ctx, cancel := context.WithCancel(t.Context())
		j := c.mustRegisterJob("gone")
		p := c.planOfPlacements(j, c.newPendingAlloc(j, n, 1))
		wg.Go(func() {
			if _, err := c.planner.Submit(ctx, p); fleet.CodeOf(err) != fleet.CodeTimeout {
				t.Errorf("submit: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(hold)
		wg.Wait()
		var order []string
		for _, p := range c.plans {
			order = append(order, string(p.EvalID))
		}
		// The first two had left the queue when the log stood still.
		if got := strings.Join(order, " "); got != "job-0 job-1 job-3 job-2 job-4" {
			t.Fatalf("committed %s", got)
		}
	})
}

func TestNotLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.planner = c.newPlanner(planner.Config{Depth: 1})
		n := c.addReadyNode("n1", 1000)
		submit := func(i int) error {
			j := c.mustRegisterJob(fleet.JobID(fmt.Sprint("job-", i)))
			_, err := c.planner.Submit(t.Context(), c.planOfPlacements(j, c.newPendingAlloc(j, n, 1)))
			return err
		}
		if err := submit(0); fleet.CodeOf(err) != fleet.CodeNotLeader {
			t.Fatalf("before: %v", err)
		}
		hold := make(chan struct{})
		c.gate = func(state.Plan) error { <-hold; return nil }
		stop := c.startPlanner()
		synctest.Wait()
		if err := c.planner.Run(t.Context()); err == nil {
			t.Fatal("it ran twice")
		}
		errs := make(chan error, 3)
		for i := range 3 {
			go func() { errs <- submit(i + 1) }()
			synctest.Wait()
		}
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		close(hold)
		<-stopped
		codes := map[fleet.Code]int{}
		for range 3 {
			codes[fleet.CodeOf(<-errs)]++
		}
		if codes[""] != 1 || codes[fleet.CodeNotLeader] != 2 {
			t.Fatalf("after: %v", codes)
		}
		if err := submit(9); fleet.CodeOf(err) != fleet.CodeNotLeader {
			t.Fatalf("after: %v", err)
		}
	})
}

// A plan that was made on a newer state than this hub has waits for it, not for
// ever.
func TestSnapshotAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
		stop := c.startPlanner()
		defer stop()
		p := c.planOfPlacements(j, c.newPendingAlloc(j, n, 1))
		p.SnapshotIndex++
		done := make(chan fleet.PlanResult, 1)
		go func() { done <- c.mustSubmitPlan(p) }()
		synctest.Wait()
		c.mustRegisterJob("other")
		if res := <-done; !res.Full() {
			t.Fatalf("result: %+v", res)
		}
		p = c.planOfPlacements(j, c.newPendingAlloc(j, n, 1))
		p.SnapshotIndex += 100
		if _, err := c.planner.Submit(t.Context(), p); fleet.CodeOf(err) != fleet.CodeUnavailable {
			t.Fatalf("submit: %v", err)
		}
	})
}

// Workers race on stale pictures, commits get lost and come later: no node is
// ever over-committed.
func TestNeverOverCommits(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := newCluster(t)
			var nodes []fleet.NodeID
			for i := range 4 {
				nodes = append(nodes, c.addReadyNode(fmt.Sprint("n", i), 1000))
			}
			dice := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			roll := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return dice.IntN(n)
			}
			c.gate = func(state.Plan) error {
				if roll(10) == 0 {
					return errOutcomeUnknown
				}
				return nil
			}
			c.startPlanner()
			var workers sync.WaitGroup
			for w := range 8 {
				j := c.mustRegisterJob(fleet.JobID(fmt.Sprint("job-", w)))
				workers.Go(func() {
					for range 40 {
						p := c.planOfPlacements(j)
						p.NodeAllocation = byNode(c.newPendingAlloc(j, nodes[roll(4)], 50+roll(100)), c.newPendingAlloc(j, nodes[roll(4)], 50))
						_, err := c.planner.Submit(context.Background(), p)
						if code := fleet.CodeOf(err); err != nil && code != fleet.CodeUnavailable && code != fleet.CodeConflict {
							t.Errorf("submit: %v", err)
						}
					}
				})
			}
			workers.Wait()
			for _, id := range nodes {
				n, _ := c.View().Node(id)
				used := c.View().Used(id)
				if used.Exceeds(n.Free()) != "" {
					t.Errorf("node %s is over-committed: %+v of %+v", id, used, n.Free())
				}
				if used.CPU < 800 {
					t.Errorf("node %s was hardly used: %+v", id, used)
				}
			}
			if err := c.View().Check(); err != nil {
				t.Error(err)
			}
		})
	}
}
