package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

func asSystemJob(j *fleet.Job) { j.Type, j.TaskGroups[0].ReschedulePolicy = fleet.JobTypeSystem, nil }

func (c *cluster) setNodeEligibility(id fleet.NodeID, to string) {
	c.mustApplyCommand(state.NodeEligibility{NodeID: id, Eligibility: to, EvalSeed: c.newID(), Now: c.now.UnixNano()})
}

func TestSystem(t *testing.T) {
	linux := fleet.Constraint{LTarget: "${attr.kernel.name}", Operand: "=", RTarget: "linux"}
	t.Run("B95", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(10)
		e := c.registerAndSchedule(job(1, asSystemJob))
		nodes := map[fleet.NodeID]bool{}
		for _, a := range c.nonTerminalAllocs() {
			nodes[a.NodeID] = true
			if a.Name != "web.web[0]" {
				t.Errorf("name %s", a.Name)
			}
		}
		if len(nodes) != 10 || len(c.nonTerminalAllocs()) != 10 || e.Status != fleet.EvalComplete || e.QueuedAllocations["web"] != 0 || len(c.entries) != 1 {
			t.Errorf("%d on %d nodes, evaluation %+v", len(c.nonTerminalAllocs()), len(nodes), e)
		}
		// An eleventh comes: its evaluation places one there, and touches no other.
		c.openNodeSession(node(10))
		c.schedulePendingEvals()
		if len(c.nonTerminalAllocs()) != 11 || len(c.plans) != 1 || len(c.plans[0].NodeAllocation) != 1 {
			t.Errorf("%d after another node came", len(c.nonTerminalAllocs()))
		}
	})
	t.Run("B97", func(t *testing.T) {
		c := newCluster(t)
		e := c.registerAndSchedule(job(1, asSystemJob))
		if e.Status != fleet.EvalComplete || len(e.FailedTGAllocs) != 0 || e.BlockedEval != "" || len(c.plans) != 0 {
			t.Errorf("evaluation %+v, %d plans", e, len(c.plans))
		}
	})
	t.Run("B46", func(t *testing.T) {
		c := newCluster(t)
		for i := range 4 {
			c.openNodeSession(node(i, func(n *fleet.Node) {
				if i == 0 {
					delete(n.Meta, "rack")
				}
			}))
		}
		c.setNodeEligibility(node(3).ID, fleet.NodeIneligible)
		c.schedulePendingEvals()
		e := c.registerAndSchedule(job(1, asSystemJob, func(j *fleet.Job) {
			j.Constraints = []fleet.Constraint{{LTarget: "${meta.rack}", Operand: fleet.OpIsSet}}
		}))
		if len(c.nonTerminalAllocs()) != 2 || e.QueuedAllocations["web"] != 0 || len(e.FailedTGAllocs) != 0 || e.BlockedEval != "" {
			t.Errorf("%d placed, %+v", len(c.nonTerminalAllocs()), e)
		}
	})
	t.Run("B104", func(t *testing.T) {
		c := newCluster(t)
		windows := func(n *fleet.Node) { n.Attributes["kernel.name"] = "windows" }
		c.openNodeSession(node(0))
		c.openNodeSession(node(1, windows))
		constrained := func(j *fleet.Job) { j.Constraints = []fleet.Constraint{linux} }
		e := c.registerAndSchedule(job(1, asSystemJob, constrained))
		if len(c.nonTerminalAllocs()) != 1 || e.QueuedAllocations["web"] != 0 || len(e.FailedTGAllocs) != 0 {
			t.Errorf("one of two suits: %d placed, %+v", len(c.nonTerminalAllocs()), e)
		}

		c = newCluster(t)
		c.addReadyNodes(2, windows)
		e = c.registerAndSchedule(job(1, asSystemJob, constrained))
		m := e.FailedTGAllocs["web"]
		if len(e.FailedTGAllocs) != 1 || m == nil || m.ConstraintFiltered[linux.String()] != 2 || e.QueuedAllocations["web"] != 0 || e.BlockedEval != "" {
			t.Errorf("none suits: %+v, metric %+v", e, m)
		}
		c.openNodeSession(node(2))
		c.schedulePendingEvals()
		if len(c.nonTerminalAllocs()) != 1 {
			t.Errorf("%d placed when one came that suits", len(c.nonTerminalAllocs()))
		}
	})
	t.Run("B107", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1)
		disk := func(id string) func(*fleet.Job) {
			return func(j *fleet.Job) { j.ID, j.TaskGroups[0].EphemeralDisk.SizeMB = fleet.JobID(id), 60<<10 }
		}
		c.registerAndSchedule(job(1, asSystemJob, disk("web")))
		e := c.registerAndSchedule(job(1, asSystemJob, disk("second")))
		if len(c.nonTerminalAllocs()) != 1 || e.QueuedAllocations["web"] != 1 || e.FailedTGAllocs["web"].DimensionExhausted["disk"] != 1 || e.BlockedEval == "" {
			t.Errorf("evaluation %+v", e)
		}
		// The first one goes, and there is room.
		c.reportAllocStatus(c.nonTerminalAllocs()[0], fleet.ClientRunning)
		first := c.nonTerminalAllocs()[0]
		c.mustApplyCommand(state.JobDeregister{Namespace: "default", ID: "web", Eval: &fleet.Evaluation{ID: fleet.EvalID(c.newID()), Status: fleet.EvalPending}, Now: c.now.UnixNano()})
		c.schedulePendingEvals()
		c.reportAllocStatus(first, fleet.ClientComplete)
		c.unblockEval(e.BlockedEval)
		if done := c.scheduleEval(e.BlockedEval); done.Status != fleet.EvalComplete || done.QueuedAllocations["web"] != 0 {
			t.Errorf("evaluation %+v", done)
		}
	})
	t.Run("B110", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(3)
		e := c.registerAndSchedule(job(1, asSystemJob, func(j *fleet.Job) {
			big := j.TaskGroups[0]
			big.Name, big.Tasks = "big", append([]fleet.Task{}, big.Tasks...)
			big.Tasks[0].Resources.CPU = 20_000
			j.TaskGroups = append(j.TaskGroups, big)
		}))
		if len(c.nonTerminalAllocs()) != 3 || e.QueuedAllocations["web"] != 0 || e.QueuedAllocations["big"] != 3 ||
			e.FailedTGAllocs["big"].NodesExhausted != 3 || e.FailedTGAllocs["web"] != nil {
			t.Errorf("%d placed, %+v", len(c.nonTerminalAllocs()), e)
		}
	})
}

// A node that goes away keeps what it has of the job: unknown, nothing elsewhere,
// and running again when it is back. A job registered meanwhile reaches it then.
func TestSystemAway(t *testing.T) {
	for _, jobType := range []string{fleet.JobTypeSystem, fleet.JobTypeSysBatch} {
		t.Run(jobType, func(t *testing.T) {
			c := newCluster(t)
			c.addReadyNodes(3)
			typed := func(j *fleet.Job) { j.Type, j.TaskGroups[0].ReschedulePolicy = jobType, nil }
			c.registerAndSchedule(job(1, typed))
			for _, a := range c.nonTerminalAllocs() {
				c.reportAllocStatus(a, fleet.ClientRunning)
			}
			away := c.nonTerminalAllocs()[0]
			c.missNodeHeartbeat(away.NodeID)
			c.schedulePendingEvals()
			if a, _ := c.store.View().Alloc(away.ID); a.ClientStatus != fleet.ClientUnknown || len(c.webJobAllocs()) != 3 {
				t.Fatalf("%s, %d allocations", a.ClientStatus, len(c.webJobAllocs()))
			}
			c.registerAndSchedule(job(1, typed, func(j *fleet.Job) { j.ID = "later" }))
			c.openNodeSession(nodeOf(t, c, away.NodeID))
			c.schedulePendingEvals()
			if a, _ := c.store.View().Alloc(away.ID); a.ClientStatus != fleet.ClientRunning || a.Terminal() || len(c.webJobAllocs()) != 3 {
				t.Errorf("%s/%s, %d allocations", a.DesiredStatus, a.ClientStatus, len(c.webJobAllocs()))
			}
			n := 0
			for range c.store.View().AllocsByJob(fleet.DefaultNamespace, "later") {
				n++
			}
			if n != 3 {
				t.Errorf("%d allocations of the job that was registered meanwhile", n)
			}
		})
	}
}

func nodeOf(tb testing.TB, c *cluster, id fleet.NodeID) *fleet.Node {
	for i := range 100 {
		if n := node(i); n.ID == id {
			return n
		}
	}
	tb.Fatalf("no node %s", id)
	return nil
}

// B11: a system job's plans are refused five times, a sysbatch job's twice.
func TestSystemRetryLimit(t *testing.T) {
	for jobType, want := range map[string]int{fleet.JobTypeSystem: 5, fleet.JobTypeSysBatch: 2} {
		t.Run(fmt.Sprintf("B11 %s", jobType), func(t *testing.T) {
			c := newCluster(t)
			c.addReadyNodes(2)
			c.sub = func(p fleet.Plan) (fleet.PlanResult, bool) {
				res := fleet.PlanResult{Rejected: map[fleet.NodeID]string{}}
				for id := range p.NodeAllocation {
					res.Rejected[id] = "no"
				}
				return res, true
			}
			e := c.registerAndSchedule(job(1, func(j *fleet.Job) { j.Type, j.TaskGroups[0].ReschedulePolicy = jobType, nil }))
			if e.Status != fleet.EvalFailed || len(c.plans) != want || e.BlockedEval == "" {
				t.Errorf("%s after %d plans", e.Status, len(c.plans))
			}
		})
	}
}

// markAllocHealthy says of an allocation that it is, in its deployment.
func (c *cluster) markAllocHealthy(a *fleet.Alloc) {
	c.mustApplyCommand(state.AllocHealth{DeploymentID: a.DeploymentID, Healthy: []fleet.AllocID{a.ID}, Now: c.now.UnixNano(), Eval: &fleet.Evaluation{
		ID: fleet.EvalID(c.newID()), TriggeredBy: fleet.TriggerDeploymentWatcher, Status: fleet.EvalPending,
	}})
}

// B98: five at once, and the rest when these are healthy.
func TestSystemRolling(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(10)
	rolling := func(j *fleet.Job) { j.TaskGroups[0].Update = &fleet.Update{MaxParallel: 5} }
	c.registerAndSchedule(job(1, asSystemJob, rolling))
	for _, a := range c.nonTerminalAllocs() {
		c.reportAllocStatus(a, fleet.ClientRunning)
	}
	c.schedulePendingEvals()
	c.registerAndSchedule(job(1, asSystemJob, rolling, func(j *fleet.Job) { task(j).Env = map[string]string{"v": "2"} }))
	versions := func() map[uint64]int {
		count := map[uint64]int{}
		for _, a := range c.nonTerminalAllocs() {
			count[a.JobVersion]++
		}
		return count
	}
	if got := versions(); got[0] != 5 || got[1] != 5 {
		t.Fatalf("after the first evaluation: %v", got)
	}
	for range 10 {
		for _, a := range c.webJobAllocs() {
			if a.JobVersion == 1 && a.ClientStatus == fleet.ClientPending {
				c.reportAllocStatus(a, fleet.ClientRunning)
				c.markAllocHealthy(a)
				break
			}
		}
		c.schedulePendingEvals()
		starting := 0
		for _, a := range c.nonTerminalAllocs() {
			if a.JobVersion == 1 && a.ClientStatus == fleet.ClientPending {
				starting++
			}
		}
		if starting > 5 {
			t.Fatalf("%d are starting at once", starting)
		}
	}
	if got := versions(); got[1] != 10 {
		t.Errorf("in the end: %v", got)
	}
}

// TestSystemOfferChanged has ready nodes offer something else: a system job comes to what
// suits it now, leaves a node that is in none of its datacenters any more, and stays where a
// constraint would not choose again.
func TestSystemOfferChanged(t *testing.T) {
	c := newCluster(t)
	bare := func(n *fleet.Node) { delete(n.Meta, "rack") }
	c.addReadyNodes(2, bare)
	c.openNodeSession(node(2))
	c.openNodeSession(node(3))
	c.registerAndSchedule(job(1, asSystemJob, func(j *fleet.Job) {
		j.Datacenters = []string{"dc1"}
		j.Constraints = []fleet.Constraint{{LTarget: "${meta.rack}", Operand: fleet.OpIsSet}}
	}))
	if len(c.nonTerminalAllocs()) != 2 {
		t.Fatalf("%d placed, two nodes suit", len(c.nonTerminalAllocs()))
	}
	say := func(n *fleet.Node) {
		c.mustApplyCommand(state.NodeRegister{Node: *n, EvalSeed: c.newID(), Now: c.now.UnixNano()})
		c.schedulePendingEvals()
	}
	on := func(want string) {
		t.Helper()
		var have []string
		for _, a := range c.nonTerminalAllocs() {
			n, _ := c.store.View().Node(a.NodeID)
			have = append(have, n.Name)
		}
		slices.Sort(have)
		if got := strings.Join(have, " "); got != want {
			t.Fatalf("it runs on %s, want %s", got, want)
		}
	}
	c.openNodeSession(node(0)) // its agent was started anew, with the meta
	c.schedulePendingEvals()
	on("edge-0 edge-2 edge-3")
	say(node(2, bare))
	on("edge-0 edge-2 edge-3")
	say(node(3, func(n *fleet.Node) { n.Datacenter = "dc2" }))
	on("edge-0 edge-2")
	say(node(3))
	on("edge-0 edge-2 edge-3")
}

// TestBlockedOfferChanged has a job wait for what is unique to a node.
func TestBlockedOfferChanged(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	e := c.registerAndSchedule(job(1, func(j *fleet.Job) {
		j.Constraints = []fleet.Constraint{{LTarget: "${meta.unique.till}", Operand: "=", RTarget: "7"}}
	}))
	blocked, _ := c.store.View().Eval(e.BlockedEval)
	if blocked == nil || !blocked.EscapedClass {
		t.Fatalf("blocked evaluation %+v", blocked)
	}
	before := c.store.View().Index()
	c.mustApplyCommand(state.NodeRegister{Node: *node(0, func(n *fleet.Node) { n.Meta["unique.till"] = "7" }), EvalSeed: c.newID(), Now: c.now.UnixNano()})
	freed := 0
	for range c.store.View().CapacitySince(before) {
		freed++
	}
	c.unblockEval(e.BlockedEval)
	c.schedulePendingEvals()
	if freed != 1 || len(c.nonTerminalAllocs()) != 1 {
		t.Errorf("capacity noted %d times, %d placed", freed, len(c.nonTerminalAllocs()))
	}
}

// TestSysBatchExpired has the window of a sysbatch job's allocation end while its node's
// history comes in: it is lost and told to stop, though its node is ready when that is
// decided, and it is not run again, whatever its edge says then.
func TestSysBatchExpired(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	c.registerAndSchedule(job(1, asSystemJob, func(j *fleet.Job) {
		j.Type = fleet.JobTypeSysBatch
		j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &[]time.Duration{5 * time.Second}[0]}
	}))
	first := c.nonTerminalAllocs()[0]
	c.reportAllocStatus(first, fleet.ClientRunning)
	c.schedulePendingEvals()
	c.missNodeHeartbeat(first.NodeID)
	c.schedulePendingEvals()
	c.now = c.now.Add(time.Minute)
	c.openNodeSession(node(0))
	c.schedulePendingEvals()
	lost, _ := c.store.View().Alloc(first.ID)
	if lost.ClientStatus != fleet.ClientLost || lost.DesiredStatus != fleet.DesiredStop || lost.NeedsToReconnect() || len(c.webJobAllocs()) != 1 {
		t.Fatalf("%s, to %s, %v, of %d", lost.ClientStatus, lost.DesiredStatus, lost.AllocStates, len(c.webJobAllocs()))
	}
	c.reportAllocStatus(lost, fleet.ClientComplete)
	c.setNodeEligibility(first.NodeID, fleet.NodeIneligible)
	c.setNodeEligibility(first.NodeID, fleet.NodeEligible)
	c.schedulePendingEvals()
	e := c.registerAndSchedule(job(1, asSystemJob, func(j *fleet.Job) {
		j.Type = fleet.JobTypeSysBatch
		j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &[]time.Duration{5 * time.Second}[0]}
	}))
	if len(c.webJobAllocs()) != 1 || len(e.FailedTGAllocs) != 0 {
		t.Errorf("%d allocations, %+v", len(c.webJobAllocs()), e.FailedTGAllocs)
	}
}

// An edge that was away while two versions came gets the newest one alone.
func TestAnEdgeThatReturnsGetsTheNewestVersion(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	version := func(env string) *fleet.Job {
		return job(1, asSystemJob, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"VERSION": env} })
	}
	c.registerAndSchedule(version("0"))
	a := c.nonTerminalAllocs()[0]
	c.reportAllocStatus(a, fleet.ClientRunning)
	c.missNodeHeartbeat(a.NodeID)
	c.schedulePendingEvals()
	c.registerAndSchedule(version("1"))
	c.registerAndSchedule(version("2"))
	c.openNodeSession(node(0))
	c.reportAllocStatus(a, fleet.ClientRunning)
	c.schedulePendingEvals()
	for _, now := range c.webJobAllocs() {
		if now.PreviousAllocation == a.ID {
			if now.JobVersion != 2 {
				t.Errorf("it gets version %d", now.JobVersion)
			}
			return
		}
	}
	t.Fatalf("nothing replaces version 0: %+v", c.webJobAllocs())
}

// A system job that changes while the driver of a node is unhealthy keeps its allocation there, and changes it when the
// driver is healthy again. A node that has the driver no more loses it.
func TestSystemChangeWaitsForTheDriver(t *testing.T) {
	c := newCluster(t)
	driver := func(info map[string]fleet.DriverInfo) func(*fleet.Node) {
		return func(n *fleet.Node) { n.Drivers = info }
	}
	unhealthy, healthy := driver(map[string]fleet.DriverInfo{"sim": {Detected: true}}), func(*fleet.Node) {}
	c.addReadyNodes(2)
	c.registerAndSchedule(job(1, asSystemJob))
	for _, a := range c.nonTerminalAllocs() {
		c.reportAllocStatus(a, fleet.ClientRunning)
	}
	describe := func(i int, change func(*fleet.Node)) {
		c.openNodeSession(node(i, change))
		c.schedulePendingEvals()
	}
	version := func(i int) string {
		for _, a := range c.nonTerminalAllocs() {
			if a.NodeID == node(i).ID && a.DesiredStatus == fleet.DesiredRun {
				return fmt.Sprint(a.JobVersion)
			}
		}
		return "none"
	}
	want := func(when string, versions ...string) {
		t.Helper()
		if got := []string{version(0), version(1)}; !slices.Equal(got, versions) {
			t.Errorf("%s: the nodes have the versions %q, want %q", when, got, versions)
		}
	}
	describe(0, unhealthy)
	e := c.registerAndSchedule(job(1, asSystemJob, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Config = map[string]any{"run_for": "2h"} }))
	want("unhealthy on one node", "0", "1")
	if m := e.FailedTGAllocs["web"]; m == nil || m.ConstraintFiltered["missing drivers"] != 1 || e.QueuedAllocations["web"] != 1 {
		t.Errorf("evaluation %+v", e)
	}
	describe(0, healthy)
	want("healthy again", "1", "1")
	describe(0, driver(nil))
	c.registerAndSchedule(job(1, asSystemJob, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Config = map[string]any{"run_for": "3h"} }))
	want("no driver on one node", "none", "2")
}
