package planner_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Every plan of a legal job is committed, however many of its allocations are on one
// node and however much each of them holds, in entries that a hub can read.
func TestAPlanOfAnySizeIsCommitted(t *testing.T) {
	const many = 50_000
	ports := make([]fleet.AssignedPort, 60)
	for i := range ports {
		ports[i] = fleet.AssignedPort{Label: fmt.Sprint("port", i), Value: 20_000 + i, To: 1 + i, HostIP: "192.0.2.1"}
	}
	for _, tt := range []struct {
		name          string
		nodes, allocs int
		held          *fleet.AssignedResources
		allAtOnce     bool
	}{
		{"50,000 on one node", 1, many, nil, false},
		{"10,000 on one node, all at once", 1, 10_000, nil, true},
		{"50,000 on 5,000 nodes", 5_000, many, nil, false},
		{"2,000 with 60 ports each, a node each", 2_000, 2_000, &fleet.AssignedResources{Ports: ports}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() { // the race detector makes it ten times as slow
				tt.nodes, tt.allocs = (tt.nodes+9)/10, tt.allocs/10
			}
			c := newCluster(t)
			j := c.mustRegisterJob("shop")
			var nodes []fleet.NodeID
			for i := range tt.nodes {
				nodes = append(nodes, c.addReadyNode(fmt.Sprint("n", i), many))
			}
			c.startPlanner()
			var allocs []fleet.Alloc
			for i := range tt.allocs {
				a := c.newPendingAlloc(j, nodes[i%tt.nodes], 1)
				a.AllocatedResources.MemoryMB, a.Allotment = 1, tt.held
				allocs = append(allocs, a)
			}
			p := c.planOfPlacements(j, allocs...)
			p.AllAtOnce = tt.allAtOnce
			p.Evals = []fleet.Evaluation{{ID: "e1", Namespace: "default", JobID: "shop", Status: fleet.EvalComplete}}
			if res := c.mustSubmitPlan(p); !res.Full() || res.AllocIndex != c.View().Index() {
				t.Fatalf("%d nodes rejected, committed in %d", len(res.Rejected), res.AllocIndex)
			}
			for i, entry := range c.plans {
				if ends := len(entry.Evals) == 1; ends != (i == len(c.plans)-1) {
					t.Errorf("entry %d of %d ends the evaluation: %t", i+1, len(c.plans), ends)
				}
			}
			for _, a := range allocs {
				if !c.allocExists(a) {
					t.Fatal("an allocation is missing")
				}
			}
		})
	}
}

// The first entry of a plan has the plan's new deployment and its updates of others; the entries
// after it have neither.
func TestADeploymentIsInThePlansFirstEntry(t *testing.T) {
	for _, allocs := range []int{0, 1, 2_500} {
		t.Run(fmt.Sprint(allocs, " allocations"), func(t *testing.T) {
			c := newCluster(t)
			j, n := c.mustRegisterJob("shop"), c.addReadyNode("n1", 100_000)
			c.startPlanner()
			var placed []fleet.Alloc
			for range allocs {
				placed = append(placed, c.newPendingAlloc(j, n, 1))
			}
			for _, id := range []fleet.DeploymentID{"d1", "d2"} {
				p := c.planOfPlacements(j, placed...)
				p.Deployment = &fleet.Deployment{ID: id, Namespace: "default", JobID: "shop", Status: fleet.DeploymentRunning}
				if id == "d2" {
					p.DeploymentUpdates = []fleet.DeploymentUpdate{{DeploymentID: "d1", Status: fleet.DeploymentFailed}}
				}
				before := len(c.plans)
				if res := c.mustSubmitPlan(p); !res.Full() {
					t.Fatalf("rejected: %v", res.Rejected)
				}
				for i, entry := range c.plans[before:] {
					begins := entry.NewDeployment != nil && entry.NewDeployment.ID == id
					if first := i == 0; begins != first || len(entry.DeploymentUpdates) > 0 != (first && id == "d2") {
						t.Errorf("%s, entry %d: begins %+v, updates %+v", id, i+1, entry.NewDeployment, entry.DeploymentUpdates)
					}
				}
			}
			for id, want := range map[fleet.DeploymentID]string{"d1": fleet.DeploymentFailed, "d2": fleet.DeploymentRunning} {
				if d, ok := c.View().Deployment(id); !ok || d.Status != want {
					t.Errorf("deployment %s is %+v, want it to be %s", id, d, want)
				}
			}
		})
	}
}

// A plan on one node that is divided is checked as a whole: it takes no more than fits.
func TestADividedPlanDoesNotOverCommit(t *testing.T) {
	c := newCluster(t)
	j, n := c.mustRegisterJob("shop"), c.addReadyNode("n1", 2_500)
	c.startPlanner()
	place := func(many int) fleet.PlanResult {
		var allocs []fleet.Alloc
		for range many {
			allocs = append(allocs, c.newPendingAlloc(j, n, 1))
		}
		return c.mustSubmitPlan(c.planOfPlacements(j, allocs...))
	}
	if res := place(2_000); !res.Full() {
		t.Fatalf("2,000 of 2,500: %v", res.Rejected)
	}
	if res := place(600); res.Rejected[n] != "cpu exhausted" {
		t.Fatalf("600 more: %+v", res.Rejected)
	}
	if used := c.View().Used(n).CPU; used != 2_000 {
		t.Fatalf("%d MHz are used", used)
	}
}

// A plan that is too large for an entry, or that the state refuses, takes no capacity and delays
// no later plan.
func TestAPlanThatIsNotCommittedHoldsNothing(t *testing.T) {
	for _, tooLarge := range []bool{true, false} {
		t.Run(fmt.Sprintf("too large %t", tooLarge), func(t *testing.T) {
			c := newCluster(t)
			j, other, n := c.mustRegisterJob("shop"), c.mustRegisterJob("other"), c.addReadyNode("n1", 1_000)
			c.startPlanner()
			a := c.newPendingAlloc(j, n, 1_000)
			if tooLarge {
				a.Name = strings.Repeat("x", state.MaxEntry)
			} else {
				c.gate = func(state.Plan) error {
					c.gate = nil
					changed := *j
					changed.Priority = 60
					c.mustApplyEntry(state.JobRegister{Job: &changed})
					return nil
				}
			}
			res, err := c.planner.Submit(c.Context(), c.planOfPlacements(j, a))
			if tooLarge != (fleet.CodeOf(err) == fleet.CodeInvalid) || !tooLarge && res.Refused == "" {
				t.Fatalf("%+v, %v", res, err)
			}
			if res := c.mustSubmitPlan(c.planOfPlacements(other, c.newPendingAlloc(other, n, 1_000))); !res.Full() {
				t.Errorf("another job's plan: %+v", res)
			}
			j, _ = c.View().Job("default", "shop")
			if res := c.mustSubmitPlan(c.planOfPlacements(j, c.newPendingAlloc(j, c.addReadyNode("n2", 1_000), 1_000))); !res.Full() || res.Refused != "" {
				t.Errorf("the same job's next plan: %+v", res)
			}
		})
	}
}

// An allocation and the one that takes its place are in one entry, wherever they are;
// so are an original that reconnects and its replacement that stops.
func TestAStopAndItsReplacementAreNotDivided(t *testing.T) {
	c := newCluster(t)
	j := c.mustRegisterJob("shop")
	var nodes []fleet.NodeID
	for i := range 3 {
		nodes = append(nodes, c.addReadyNode(fmt.Sprint("n", i), 100_000))
	}
	c.startPlanner()
	var old []fleet.Alloc
	for i := range 2_400 {
		old = append(old, c.newPendingAlloc(j, nodes[i%3], 1))
	}
	c.mustSubmitPlan(c.planOfPlacements(j, old...))
	var stops, replacements []fleet.Alloc
	for i, a := range old {
		a.DesiredStatus = fleet.DesiredStop
		next := c.newPendingAlloc(j, nodes[(i+1)%3], 1)
		if i%2 == 0 {
			next.PreviousAllocation = a.ID
		} else {
			next = old[(i+2)%len(old)]
			next.DesiredStatus = fleet.DesiredStop
			a.DesiredStatus, a.NextAllocation = fleet.DesiredRun, next.ID
			if (i+2)%4 == 1 {
				continue // each is in one pair
			}
			stops = append(stops, a, next)
			continue
		}
		stops, replacements = append(stops, a), append(replacements, next)
	}
	p := c.planOfPlacements(j, replacements...)
	p.NodeUpdate = byNode(stops...)
	before := len(c.plans)
	if res := c.mustSubmitPlan(p); !res.Full() {
		t.Fatalf("rejected: %v", res.Rejected)
	}
	if entries := len(c.plans) - before; entries < 3 {
		t.Fatalf("%d entries: the plan was not divided", entries)
	}
	for i, entry := range c.plans[before:] {
		in := map[fleet.AllocID]bool{}
		for _, byNode := range []map[fleet.NodeID][]fleet.Alloc{entry.Result.NodeUpdate, entry.Result.NodeAllocation} {
			for _, list := range byNode {
				for _, a := range list {
					in[a.ID] = true
				}
			}
		}
		for _, list := range entry.Result.NodeAllocation {
			for _, a := range list {
				if !in[a.PreviousAllocation] {
					t.Fatalf("entry %d places %s, and does not stop %s", i, a.ID, a.PreviousAllocation)
				}
			}
		}
		for _, list := range entry.Result.NodeUpdate {
			for _, a := range list {
				if a.NextAllocation != "" && !in[a.NextAllocation] {
					t.Fatalf("entry %d has %s, and not %s", i, a.ID, a.NextAllocation)
				}
			}
		}
	}
}

// A job that is changed while its plan is committed in several entries: the worker is told
// from where on to look again, and that a part was committed.
func TestAPlanThatIsOvertakenIsRefusedWithWhereToLookAgain(t *testing.T) {
	c := newCluster(t)
	j, n := c.mustRegisterJob("shop"), c.addReadyNode("n1", 100_000)
	c.startPlanner()
	var allocs []fleet.Alloc
	for range 2_500 {
		allocs = append(allocs, c.newPendingAlloc(j, n, 1))
	}
	var changed fleet.Index
	var entries atomic.Int64
	c.gate = func(state.Plan) error {
		if entries.Add(1) == 3 {
			c.mustRegisterJob("shop2")
			again := *j
			again.Priority = 60
			changed = c.mustApplyEntry(state.JobRegister{Job: &again}).Index
		}
		return nil
	}
	res := c.mustSubmitPlan(c.planOfPlacements(j, allocs...))
	if res.Refused == "" || res.Full() || res.RefreshIndex <= changed || res.AllocIndex == 0 || res.AllocIndex >= changed {
		t.Fatalf("changed in entry %d: %+v", changed, res)
	}
}

// planOfChunks returns a plan that is divided into so many entries, and one more that ends the evaluation e1.
func (c *cluster) planOfChunks(chunks int) fleet.Plan {
	j := c.mustRegisterJob("shop")
	nodes := []fleet.NodeID{c.addReadyNode("n1", 100_000), c.addReadyNode("n3", 100_000), c.addReadyNode("n4", 100_000)}
	var allocs []fleet.Alloc
	for i := range chunks*1000 - 500 {
		allocs = append(allocs, c.newPendingAlloc(j, nodes[i%3], 1))
	}
	p := c.planOfPlacements(j, allocs...)
	p.Evals = []fleet.Evaluation{{ID: "e1", Namespace: "default", JobID: "shop", Status: fleet.EvalComplete}}
	return p
}

// The entries of a large plan are committed several at a time: the first one alone, which has what the others refer to, and
// the last one alone, which ends the evaluation. Each has the time at which it is committed.
func TestEntriesOfAPlanOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		stop := c.startPlanner()
		p := c.planOfChunks(20)
		var mu sync.Mutex
		underway, begun := 0, 0
		together := make(chan struct{})
		release := sync.OnceFunc(func() { close(together) })
		count := func(more int) (now, ever int) {
			mu.Lock()
			defer mu.Unlock()
			underway, begun = underway+more, begun+max(0, more)
			return underway, begun
		}
		c.gate = func(entry state.Plan) error {
			now, n := count(1)
			defer count(-1)
			switch {
			case n == 1:
				time.Sleep(time.Second)
				synctest.Wait() // whatever is committed together with it has begun
				if _, ever := count(0); ever != 1 {
					t.Errorf("%d entries begin before the first is committed", ever)
				}
			case len(entry.Evals) > 0:
				if done := c.countPlans(); done != 20 {
					t.Errorf("the evaluation ends after %d entries", done)
				}
			case now > 8:
				t.Errorf("%d entries are committed at once", now)
			case now == 8:
				release()
			default:
				<-together // blocks for ever if fewer are committed at once
			}
			return nil
		}
		submitted := time.Now()
		if res := c.mustSubmitPlan(p); !res.Full() || res.AllocIndex != c.View().Index() || begun != 21 {
			t.Errorf("%d entries: %+v", begun, res)
		}
		if e, _ := c.View().Eval("e1"); e.ModifyTime != submitted.Add(time.Second).UnixNano() {
			t.Errorf("submitted at %d, and the evaluation ended at %d, want one second later", submitted.UnixNano(), e.ModifyTime)
		}
		stop()
	})
}

// If one entry among several is refused or in doubt, the last one is not committed, so that the evaluation is processed
// again; and a doubt counts for more than a refusal.
func TestAnEntryAmongSeveralFails(t *testing.T) {
	for _, tt := range []struct {
		name             string
		refused, unknown bool
	}{{"refused", true, false}, {"in doubt", false, true}, {"both", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t)
			c.startPlanner()
			p := c.planOfChunks(5)
			var begun atomic.Int64
			third := make(chan struct{}) // closed when the third entry is about to be refused
			c.gate = func(entry state.Plan) error {
				switch n := begun.Add(1); {
				case len(entry.Evals) > 0:
					t.Error("the evaluation ends")
				case n == 2:
					if tt.refused {
						<-third
					}
					if tt.unknown {
						return errOutcomeUnknown
					}
				case n == 3 && tt.refused:
					changed := *p.Job
					changed.Priority = 60
					c.mustApplyEntry(state.JobRegister{Job: &changed})
					close(third)
				}
				return nil
			}
			res, err := c.planner.Submit(c.Context(), p)
			switch {
			case tt.unknown && fleet.CodeOf(err) != fleet.CodeUnavailable:
				t.Errorf("an entry is in doubt: %+v, %v", res, err)
			case !tt.unknown && (err != nil || res.Refused == "" || res.RefreshIndex < c.View().Index() || res.AllocIndex == 0):
				t.Errorf("an entry is refused: %+v, %v", res, err)
			}
			if _, ended := c.View().Eval("e1"); ended {
				t.Error("the evaluation is committed")
			}
			c.gate = nil
			other, n := c.mustRegisterJob("other"), c.addReadyNode("n2", 1)
			if res := c.mustSubmitPlan(c.planOfPlacements(other, c.newPendingAlloc(other, n, 1))); !res.Full() || (c.barrier > 0) != tt.unknown {
				t.Errorf("another job's plan, after %d barriers: %+v", c.barrier, res)
			}
		})
	}
}
