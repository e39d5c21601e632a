package rollout_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/rollout"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
)

// cluster is a state with one ready node, and a watcher that leads.
type cluster struct {
	testing.TB
	*statetest.Log
	watcher *rollout.Watcher

	mu              sync.Mutex
	seq             int
	log             []state.Command // of the watcher
	ended           int             // how many of log endWatcherEvals has read
	rejectsCommands bool            // nothing of the watcher is committed
}

const node = fleet.NodeID("00000000-0000-4000-8000-000000000001")

// allSuit is a SuitsFunc by which each node suits each group.
func allSuit(*state.View, *fleet.Job) (func(*fleet.Node, string) (string, bool), error) {
	return nil, nil
}

func newCluster(tb testing.TB) *cluster {
	c := &cluster{TB: tb, Log: statetest.NewLog()}
	c.mustCommit(state.NodeRegister{Node: fleet.Node{ID: node, Name: "n", Datacenter: "dc1", NodePool: "default"}, Now: c.nowNano()})
	c.mustCommit(state.SessionOpen{NodeID: node, Session: 1, Instance: "i", BootID: "b", Hub: "h", EvalSeed: "s", Now: c.nowNano()})
	var err error
	c.watcher, err = rollout.New(rollout.Config{State: c.Store, Apply: c, Suits: allSuit, NewID: func() string { return c.nextUUID("eval") }})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func (c *cluster) nowNano() int64 { return time.Now().UnixNano() }

func (c *cluster) nextUUID(kind string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	return fleet.DeriveUUID(kind, fmt.Sprint(c.seq))
}

// Apply is the watcher's.
func (c *cluster) Apply(ctx context.Context, cmd state.Command) (state.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rejectsCommands {
		return state.Result{}, fleet.Errorf(fleet.CodeUnavailable, "no leader")
	}
	c.log = append(c.log, cmd)
	return c.Log.Apply(ctx, cmd)
}

func (c *cluster) mustCommit(cmd state.Command) state.Result {
	c.Helper()
	return c.MustApply(c.TB, cmd)
}

// startWatcher lets the watcher lead until the test ends.
func (c *cluster) startWatcher() {
	ctx, cancel := context.WithCancel(context.Background())
	var leading sync.WaitGroup
	leading.Go(func() {
		if err := c.watcher.Lead(ctx); err != nil {
			c.Error(err)
		}
	})
	c.Cleanup(func() { cancel(); leading.Wait() })
}

// registerWithDeployment makes the next version of a job, whose content is env, and its
// deployment.
func (c *cluster) registerWithDeployment(id fleet.JobID, env string, change func(*fleet.TaskGroup, *fleet.DeploymentState)) fleet.DeploymentID {
	c.Helper()
	g := fleet.TaskGroup{Name: "web", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "sim", Env: map[string]string{"V": env}}},
		ReschedulePolicy: &fleet.ReschedulePolicy{Unlimited: true}}
	s := fleet.DeploymentState{DesiredTotal: 1}
	if change != nil {
		change(&g, &s)
	}
	job := &fleet.Job{Namespace: "default", ID: id, Type: fleet.JobTypeService, Priority: 50, TaskGroups: []fleet.TaskGroup{g}}
	c.mustCommit(state.JobRegister{Job: job, Now: c.nowNano()})
	j, _ := c.View().Job("default", id)
	d := &fleet.Deployment{
		ID: fleet.DeploymentID(c.nextUUID("deployment")), Namespace: "default", JobID: id, JobVersion: j.Version, JobCreateIndex: j.CreateIndex,
		Status: fleet.DeploymentRunning, TaskGroups: map[string]fleet.DeploymentState{"web": s},
	}
	c.mustCommit(state.Plan{NewDeployment: d, Now: c.nowNano()})
	return d.ID
}

func (c *cluster) placeAlloc(d fleet.DeploymentID, canary bool) fleet.AllocID {
	c.Helper()
	dep := c.mustDeployment(d)
	j, _ := c.View().Job("default", dep.JobID)
	id := fleet.AllocID(c.nextUUID("alloc"))
	a := fleet.Alloc{
		ID: id, Namespace: "default", NodeID: node, JobID: j.ID, JobVersion: j.Version, JobHash: j.SpecHash, TaskGroup: "web",
		Name: fmt.Sprintf("%s.web[%s]", j.ID, id), DeploymentID: d, DeploymentStatus: &fleet.AllocDeployment{Canary: canary},
	}
	c.mustCommit(state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{node: {a}}}, Now: c.nowNano()})
	return id
}

func (c *cluster) mustDeployment(id fleet.DeploymentID) *fleet.Deployment {
	c.Helper()
	d, ok := c.View().Deployment(id)
	if !ok {
		c.Fatalf("no deployment %s", id)
	}
	return d
}

func (c *cluster) markHealthy(d fleet.DeploymentID, ids ...fleet.AllocID) {
	c.Helper()
	c.mustCommit(state.AllocHealth{DeploymentID: d, Healthy: ids, Now: c.nowNano()})
}

func (c *cluster) markUnhealthy(d fleet.DeploymentID, ids ...fleet.AllocID) {
	c.Helper()
	c.mustCommit(state.AllocHealth{DeploymentID: d, Unhealthy: ids, Now: c.nowNano()})
}

// waitForWatcher lets the watcher do what it has to.
func (c *cluster) waitForWatcher() {
	time.Sleep(time.Second) // virtual
	synctest.Wait()
}

func (c *cluster) wantDeploymentStatus(d fleet.DeploymentID, status, description string) {
	c.Helper()
	if got := c.mustDeployment(d); got.Status != status || !strings.HasPrefix(got.StatusDescription, description) {
		c.Fatalf("deployment is %s: %q, want %s: %q", got.Status, got.StatusDescription, status, description)
	}
}

// countWatcherEvals counts the evaluations that the watcher asked for.
func (c *cluster) countWatcherEvals() int {
	n := 0
	for e := range c.View().Evals("*", "") {
		if e.TriggeredBy == fleet.TriggerDeploymentWatcher {
			n++
		}
	}
	return n
}

func deadline(d time.Duration) func(*fleet.TaskGroup, *fleet.DeploymentState) {
	return func(_ *fleet.TaskGroup, s *fleet.DeploymentState) { s.ProgressDeadline = d }
}

func TestWatcher(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(c *cluster)
	}{
		{"C28 promotes by itself", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) { s.AutoPromote, s.DesiredCanaries = true, 2 })
			x, y := c.placeAlloc(d, true), c.placeAlloc(d, true)
			c.markHealthy(d, x)
			c.waitForWatcher()
			if c.mustDeployment(d).TaskGroups["web"].Promoted {
				c.Fatal("promoted with one of two healthy")
			}
			c.markHealthy(d, y)
			c.waitForWatcher()
			if a, _ := c.View().Alloc(x); !c.mustDeployment(d).TaskGroups["web"].Promoted || a.DeploymentStatus.Canary {
				c.Fatalf("not promoted: %+v", c.mustDeployment(d))
			}
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
			if c.watcher.Stats().Watching != 1 {
				c.Fatal("it is not watched any more")
			}
		}},
		{"C31 more is healthy: one evaluation", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", deadline(time.Minute))
			c.markHealthy(d, c.placeAlloc(d, false), c.placeAlloc(d, false))
			c.waitForWatcher()
			if n := c.countWatcherEvals(); n != 1 {
				c.Fatalf("%d evaluations", n)
			}
		}},
		{"C32", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", nil)
			c.markUnhealthy(d, c.placeAlloc(d, false))
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescFailedAllocations)
			if c.watcher.Stats().Watching != 0 || c.countWatcherEvals() != 1 {
				c.Fatalf("%+v, %d evaluations", c.watcher.Stats(), c.countWatcherEvals())
			}
		}},
		{"C34", func(c *cluster) {
			c.registerStableVersion("shop", "1")
			d := c.registerWithDeployment("shop", "2", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) { s.AutoRevert = true })
			c.markUnhealthy(d, c.placeAlloc(d, false))
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescFailedAllocations+" - rolling back to job version 0")
			if j, _ := c.View().Job("default", "shop"); j.Version != 2 || j.TaskGroups[0].Tasks[0].Env["V"] != "1" {
				c.Fatalf("version %d, env %v", j.Version, j.TaskGroups[0].Tasks[0].Env)
			}
			if c.countWatcherEvals() != 1 {
				c.Fatalf("%d evaluations", c.countWatcherEvals())
			}
		}},
		{"C34 nothing to go back to", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) { s.AutoRevert = true })
			c.markUnhealthy(d, c.placeAlloc(d, false))
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescFailedAllocations+" - no stable job version")
		}},
		{"C43, C35, I19: back to what it is already", func(c *cluster) {
			c.registerStableVersion("shop", "1")
			d := c.registerWithDeployment("shop", "1", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) { s.AutoRevert, s.ProgressDeadline = true, 0 })
			c.markUnhealthy(d, c.placeAlloc(d, false))
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescFailedAllocations+" - not rolling back to stable job version 0 as current job has same specification")
			time.Sleep(time.Hour) // time to do it again
			synctest.Wait()
			if j, _ := c.View().Job("default", "shop"); j.Version != 0 || c.countWatcherEvals() != 1 || c.watcher.Stats().Watching != 0 {
				c.Fatalf("version %d, %d evaluations, %+v", j.Version, c.countWatcherEvals(), c.watcher.Stats())
			}
		}},
		{"C37", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", deadline(10*time.Second))
			c.placeAlloc(d, false)
			time.Sleep(9 * time.Second)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
			c.waitForWatcher()
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescProgressDeadline)
		}},
		{"C38 progress moves the deadline", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) {
				s.ProgressDeadline, s.DesiredTotal = 10*time.Second, 2
			})
			x, y := c.placeAlloc(d, false), c.placeAlloc(d, false)
			time.Sleep(8 * time.Second)
			c.markHealthy(d, x)
			time.Sleep(8 * time.Second)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
			c.markHealthy(d, y)
			time.Sleep(time.Hour)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "") // nothing is left to wait for: the scheduler ends it
		}},
		{"C39, I18: healthy canaries wait for people", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) {
				s.ProgressDeadline, s.DesiredTotal, s.DesiredCanaries = 10*time.Second, 5, 1
			})
			c.markHealthy(d, c.placeAlloc(d, true))
			time.Sleep(time.Hour)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
		}},
		{"C40", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", deadline(time.Minute))
			id := c.placeAlloc(d, false)
			c.markUnhealthy(d, id)
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
			if a, _ := c.View().Alloc(id); !a.DesiredTransition.Reschedule || c.countWatcherEvals() != 1 {
				c.Fatalf("%+v, %d evaluations", a.DesiredTransition, c.countWatcherEvals())
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescProgressDeadline)
		}},
		{"C41", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", func(g *fleet.TaskGroup, s *fleet.DeploymentState) {
				s.ProgressDeadline, g.ReschedulePolicy = time.Minute, &fleet.ReschedulePolicy{}
			})
			c.markUnhealthy(d, c.placeAlloc(d, false))
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescFailedAllocations)
		}},
		{"what is away has no deadline", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", deadline(time.Minute))
			id := c.placeAlloc(d, false)
			c.disconnectNode(id)
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
			running, _ := c.View().Deployment(d)
			if o := rollout.OutlookOf(c.View(), running, allSuit, time.Now()); o == nil || o.Deadline != nil || !o.Deferred {
				c.Errorf("its outlook is %+v", o)
			}
			c.mustCommit(state.SessionOpen{NodeID: node, Session: 2, Instance: "i", BootID: "b", Hub: "h", EvalSeed: "s", Now: c.nowNano()})
			time.Sleep(59 * time.Second)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
			c.waitForWatcher()
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescProgressDeadline)
		}},
		{"nor has what no node within reach may run", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", deadline(time.Minute))
			id := c.placeAlloc(d, false)
			c.loseAlloc(id)
			blocked := fleet.Evaluation{
				ID: fleet.EvalID(c.nextUUID("eval")), Namespace: "default", JobID: "shop", Type: fleet.JobTypeService, Priority: 50, Status: fleet.EvalBlocked,
				FailedTGAllocs: map[string]*fleet.AllocMetric{"web": {}},
			}
			c.mustCommit(state.Evals{Evals: []fleet.Evaluation{blocked}, Now: c.nowNano()})
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
			c.placeAlloc(d, false)
			done := blocked
			done.Status = fleet.EvalComplete
			c.mustCommit(state.Evals{Evals: []fleet.Evaluation{done}, Now: c.nowNano()})
			time.Sleep(59 * time.Second)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
			c.waitForWatcher()
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescProgressDeadline)
		}},
		{"nor has what a node that is away has a place for", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) {
				s.ProgressDeadline, s.DesiredTotal = time.Minute, 2
			})
			c.markHealthy(d, c.placeAlloc(d, false))
			c.mustCommit(state.Evals{Evals: []fleet.Evaluation{{
				ID: fleet.EvalID(c.nextUUID("eval")), Namespace: "default", JobID: "shop", Type: fleet.JobTypeService, Priority: 50, Status: fleet.EvalBlocked,
				FailedTGAllocs: map[string]*fleet.AllocMetric{"web": {NodesEvaluated: 1, NodesFiltered: 1, NodesAway: 1}},
			}}, Now: c.nowNano()})
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
		}},
		{"what is full has one", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) {
				s.ProgressDeadline, s.DesiredTotal = time.Minute, 2
			})
			c.markHealthy(d, c.placeAlloc(d, false))
			c.mustCommit(state.Evals{Evals: []fleet.Evaluation{{
				ID: fleet.EvalID(c.nextUUID("eval")), Namespace: "default", JobID: "shop", Type: fleet.JobTypeService, Priority: 50, Status: fleet.EvalBlocked,
				FailedTGAllocs: map[string]*fleet.AllocMetric{"web": {NodesEvaluated: 1, NodesExhausted: 1}},
			}}, Now: c.nowNano()})
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescProgressDeadline)
		}},
		{"paused", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", deadline(time.Minute))
			c.placeAlloc(d, false)
			c.mustCommit(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: d, Status: fleet.DeploymentPaused}, Now: c.nowNano()})
			time.Sleep(time.Hour)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentPaused, "")
			c.mustCommit(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: d, Status: fleet.DeploymentRunning}, Now: c.nowNano()})
			time.Sleep(59 * time.Second)
			synctest.Wait()
			c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
			c.waitForWatcher()
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescProgressDeadline)
		}},
		{"what cannot be committed is tried again", func(c *cluster) {
			d := c.registerWithDeployment("shop", "1", nil)
			c.mu.Lock()
			c.rejectsCommands = true
			c.mu.Unlock()
			c.markUnhealthy(d, c.placeAlloc(d, false))
			time.Sleep(time.Minute)
			c.mu.Lock()
			c.rejectsCommands = false
			c.mu.Unlock()
			c.waitForWatcher()
			c.waitForWatcher()
			c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescFailedAllocations)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.startWatcher()
				tc.run(c)
			})
		})
	}
}

// registerStableVersion makes a version of a job that a deployment brought to success.
func (c *cluster) registerStableVersion(id fleet.JobID, env string) {
	d := c.registerWithDeployment(id, env, nil)
	c.mustCommit(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: d, Status: fleet.DeploymentSuccessful}, Now: c.nowNano()})
}

// disconnectNode lets the node miss its deadline, and its allocations become unknown.
func (c *cluster) disconnectNode(ids ...fleet.AllocID) {
	n, _ := c.View().Node(node)
	c.mustCommit(state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: node, Epoch: n.Epoch}}, EvalSeed: "s", Now: c.nowNano()})
	var gone []fleet.Alloc
	for _, id := range ids {
		a, _ := c.View().Alloc(id)
		b := *a
		b.ClientStatus = fleet.ClientUnknown
		b.AllocStates = []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: fleet.ClientUnknown, Time: time.Now()}}
		gone = append(gone, b)
	}
	c.mustCommit(state.Plan{Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{node: gone}}, Now: c.nowNano()})
}

// loseAlloc has an allocation given up with its node.
func (c *cluster) loseAlloc(id fleet.AllocID) {
	a, _ := c.View().Alloc(id)
	b := *a
	b.DesiredStatus, b.ClientStatus = fleet.DesiredStop, fleet.ClientLost
	c.mustCommit(state.Plan{Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{node: {b}}}, Now: c.nowNano()})
}

// However many deployments there are: a change wakes one watcher, which looks as often as ever; and there is one watcher a
// deployment.
func TestWorkPerChangeIsConstant(t *testing.T) {
	for _, n := range []int{10, 100, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				ds, as := c.startDeployments(n)
				c.startWatcher()
				c.waitForWatcher()
				before := c.watcher.Stats()
				if before.Watching != int64(n) || before.Looks != uint64(n) {
					t.Fatalf("%d deployments: %+v", n, before)
				}
				const changes = 5
				for i := range changes {
					c.markHealthy(ds[i*n/changes], as[i*n/changes])
					c.waitForWatcher()
					c.endWatcherEvals(fleet.EvalComplete)
					c.waitForWatcher()
				}
				// The change itself, once more after the evaluation that it led to, and after the end of that.
				if looks := c.watcher.Stats().Looks - before.Looks; looks != 3*changes {
					t.Fatalf("%d deployments: %d looks for %d changes", n, looks, changes)
				}
				if got := len(c.log); got != changes {
					t.Fatalf("%d commands for %d changes", got, changes)
				}
			})
		})
	}
}

// endWatcherEvals ends the evaluations that the watcher has asked for since it was last called.
func (c *cluster) endWatcherEvals(status string) {
	c.Helper()
	c.mu.Lock()
	asked := c.log[c.ended:]
	c.ended = len(c.log)
	c.mu.Unlock()
	var evals []fleet.Evaluation
	for _, cmd := range asked {
		switch cmd := cmd.(type) {
		case state.Evals:
			evals = append(evals, cmd.Evals...)
		case state.AllocHealth:
			evals = append(evals, *cmd.Eval)
		}
	}
	for i := range evals {
		evals[i].Status = status
	}
	c.mustCommit(state.Evals{Evals: evals, Now: c.nowNano()})
}

// rolloutTest is a cluster with one deployment that is watched.
type rolloutTest struct {
	*cluster
	deployment fleet.DeploymentID
	allocs     []fleet.AllocID
}

func newRolloutTest(tb testing.TB, allocs int) *rolloutTest {
	c := &rolloutTest{cluster: newCluster(tb)}
	c.deployment = c.registerWithDeployment("shop", "1", func(_ *fleet.TaskGroup, s *fleet.DeploymentState) {
		s.DesiredTotal, s.ProgressDeadline = allocs, time.Hour
	})
	for range allocs {
		c.allocs = append(c.allocs, c.placeAlloc(c.deployment, false))
	}
	c.startWatcher()
	synctest.Wait()
	return c
}

// wantEvals checks how many evaluations the watcher has asked for in all, after it has gathered changes until now.
func (c *rolloutTest) wantEvals(want int, when string) {
	c.Helper()
	synctest.Wait()
	if got := c.countWatcherEvals(); got != want {
		c.Fatalf("%s: %d evaluations, want %d", when, got, want)
	}
}

// While allocations become healthy one after the other, the watcher asks for one evaluation at a time. After its end it pauses
// for five times its duration, at most a second, however the evaluation ended. The end of the pause wakes it, with a deadline
// that follows and without.
func TestOneEvaluationAtATime(t *testing.T) {
	const gather = rollout.DefaultGather
	for _, status := range []string{fleet.EvalComplete, fleet.EvalFailed, fleet.EvalCanceled} {
		for _, tt := range []struct{ took, pause time.Duration }{{30 * time.Second, time.Second}, {100 * time.Millisecond, 500 * time.Millisecond}} {
			for _, allocs := range []int{2, 3} { // no deadline runs when all are healthy
				synctest.Test(t, func(t *testing.T) {
					c := newRolloutTest(t, allocs)
					c.markHealthy(c.deployment, c.allocs[0])
					time.Sleep(gather)
					c.wantEvals(1, "with the first healthy one")
					c.markHealthy(c.deployment, c.allocs[1])
					time.Sleep(tt.took)
					c.wantEvals(1, "while that is pending")
					c.endWatcherEvals(status)
					time.Sleep(tt.pause - time.Millisecond)
					c.wantEvals(1, "before the end of the pause")
					time.Sleep(2 * time.Millisecond)
					c.wantEvals(2, "after the pause")
					time.Sleep(time.Minute)
					c.wantEvals(2, "while that is pending")
				})
			}
		}
	}
}

// The pause ends a while after the end of the evaluation, whenever the watcher looks, and whatever the clock does.
func TestEndOfPause(t *testing.T) {
	ended := func(created, modified time.Duration) *fleet.Evaluation {
		return &fleet.Evaluation{CreateTime: int64(created), ModifyTime: int64(modified)}
	}
	for name, tt := range map[string]struct {
		e         *fleet.Evaluation
		now, want time.Duration
	}{
		"removed":                  {nil, 10 * time.Second, 10 * time.Second},
		"short":                    {ended(0, 20*time.Millisecond), 20 * time.Millisecond, 120 * time.Millisecond},
		"seen later":               {ended(0, 20*time.Millisecond), 100 * time.Millisecond, 120 * time.Millisecond},
		"seen after the pause":     {ended(0, 20*time.Millisecond), 10 * time.Second, 120 * time.Millisecond},
		"long":                     {ended(0, time.Minute), time.Minute, time.Minute + time.Second},
		"clock set back since":     {ended(0, time.Hour), time.Minute, time.Minute + time.Second},
		"clock set back meanwhile": {ended(time.Hour, time.Minute), time.Minute, time.Minute},
	} {
		if got := rollout.EndOfPause(tt.e, time.Unix(0, int64(tt.now))); got.UnixNano() != int64(tt.want) {
			t.Errorf("%s: %s, want %s", name, time.Duration(got.UnixNano()), tt.want)
		}
	}
}

// Failed allocations wait neither for an evaluation of what is healthy, nor for the pause after it.
func TestFailuresDoNotWaitForHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRolloutTest(t, 4)
		c.markHealthy(c.deployment, c.allocs[0])
		time.Sleep(rollout.DefaultGather)
		c.wantEvals(1, "with the first healthy one")
		c.markUnhealthy(c.deployment, c.allocs[1])
		time.Sleep(rollout.DefaultGather)
		c.wantEvals(2, "with a failed one while that is pending")
		c.markHealthy(c.deployment, c.allocs[2])
		time.Sleep(time.Minute)
		c.wantEvals(2, "with a healthy one while both are pending")
		c.endWatcherEvals(fleet.EvalComplete)
		time.Sleep(rollout.DefaultGather)
		c.markUnhealthy(c.deployment, c.allocs[3])
		time.Sleep(2 * rollout.DefaultGather)
		c.wantEvals(3, "with a failed one in the pause")
	})
}

// startDeployments begins n deployments, with one allocation each.
func (c *cluster) startDeployments(n int) ([]fleet.DeploymentID, []fleet.AllocID) {
	ds, as := make([]fleet.DeploymentID, n), make([]fleet.AllocID, n)
	for i := range ds {
		ds[i] = c.registerWithDeployment(fleet.JobID(fmt.Sprintf("job-%04d", i)), "1", deadline(time.Hour))
		as[i] = c.placeAlloc(ds[i], false)
	}
	return ds, as
}

// BenchmarkChange is a change of one of so many deployments, until its watcher has
// asked for an evaluation.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCluster(b)
			asked := make(chan struct{}, 1)
			w, err := rollout.New(rollout.Config{State: c.Store, Apply: notifyingCluster{c, asked}, Suits: allSuit, Gather: -1})
			if err != nil {
				b.Fatal(err)
			}
			c.watcher = w
			ds, as := c.startDeployments(n)
			c.startWatcher()
			for i := 0; b.Loop(); i++ {
				c.markHealthy(ds[i%n], as[i%n])
				<-asked
				c.endWatcherEvals(fleet.EvalComplete)
			}
		})
	}
}

// notifyingCluster says when the watcher committed something.
type notifyingCluster struct {
	*cluster
	asked chan<- struct{}
}

func (t notifyingCluster) Apply(ctx context.Context, c state.Command) (state.Result, error) {
	res, err := t.cluster.Apply(ctx, c)
	t.asked <- struct{}{}
	return res, err
}

// The deadline of a rollout does not run while what is left of it waits for a window, and
// begins anew when one opens.
func TestDeadlinesRunInWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * time.Minute) // a virtual clock begins at a full hour
		c := newCluster(t)
		c.startWatcher()
		nightly := func(g *fleet.TaskGroup, s *fleet.DeploymentState) {
			g.Update = &fleet.Update{MaxParallel: 2, Windows: []fleet.UpdateWindow{{Cron: "0 * * * *", Duration: 20 * time.Minute}}}
			s.ProgressDeadline, s.DesiredTotal = 5*time.Minute, 2
		}
		old := c.registerWithDeployment("shop", "1", nightly)
		waits := c.placeAlloc(old, false)
		c.markHealthy(old, waits)
		d := c.registerWithDeployment("shop", "2", nightly)
		c.markHealthy(d, c.placeAlloc(d, false))
		time.Sleep(29 * time.Minute)
		synctest.Wait()
		c.wantDeploymentStatus(d, fleet.DeploymentRunning, "") // long after its deadline
		time.Sleep(5 * time.Minute)                            // the window has been open for 4 minutes
		synctest.Wait()
		c.wantDeploymentStatus(d, fleet.DeploymentRunning, "")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		c.wantDeploymentStatus(d, fleet.DeploymentFailed, fleet.DescProgressDeadline) // nothing came of it in its window
		c.waitForWatcher()
	})
}
