package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/scheduler"
	"skerry/hub/state"
)

// B1: all are placed, by name, and all of it is one entry.
func TestRegister(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(10)
	e := c.registerAndSchedule(job(3))
	if e.Status != fleet.EvalComplete || e.QueuedAllocations["web"] != 0 || e.SnapshotIndex == 0 {
		t.Errorf("evaluation %+v", e)
	}
	if got := names(c.nonTerminalAllocs()); got != "web.web[0] web.web[1] web.web[2]" {
		t.Errorf("placed %s", got)
	}
	if len(c.entries) != 1 {
		t.Errorf("%d entries, want 1", len(c.entries))
	}
	for _, a := range c.nonTerminalAllocs() {
		if a.JobHash == "" || a.Job == nil || a.EvalID != e.ID || a.Score <= 0 || a.Metrics == nil || a.DesiredDescription == "" ||
			a.AllocatedResources != (fleet.Resources{CPU: 500, MemoryMB: 256, DiskMB: 150}) {
			t.Errorf("allocation %+v", a)
		}
	}
}

// B2: nothing to do is one update of the evaluation.
func TestCountZero(t *testing.T) {
	c := newCluster(t)
	e := c.registerAndSchedule(job(0))
	if e.Status != fleet.EvalComplete || len(c.plans) != 0 || len(c.entries) != 1 {
		t.Errorf("%s, %d plans, %d entries", e.Status, len(c.plans), len(c.entries))
	}
}

// A failed placement counts the nodes that would have a place for it if they were connected:
// its deployment waits for them.
func TestFailureCountsNodesThatAreAway(t *testing.T) {
	suits := func(*fleet.Node) {}
	for name, test := range map[string]struct {
		change func(n *fleet.Node)
		count  int
	}{
		"suits":            {suits, 1},
		"full":             {func(n *fleet.Node) { n.Reserved.CPU = n.Resources.CPU }, 0},
		"unsuitable":       {func(n *fleet.Node) { n.Attributes["kernel.name"] = "windows" }, 0},
		"other pool":       {func(n *fleet.Node) { n.NodePool = "other" }, 0},
		"other datacenter": {func(n *fleet.Node) { n.Datacenter = "dc2" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			near, away := node(0, suits), node(1, test.change)
			c.openNodeSession(near)
			c.openNodeSession(away)
			c.missNodeHeartbeat(away.ID)
			e := c.registerAndSchedule(job(3, func(j *fleet.Job) {
				j.Datacenters = []string{"dc1"}
				j.Constraints = []fleet.Constraint{
					{Operand: fleet.OpDistinctHosts, RTarget: "true"},
					{LTarget: "${attr.kernel.name}", Operand: "=", RTarget: "linux"},
				}
			}))
			m := e.FailedTGAllocs["web"]
			if m == nil || m.NodesEvaluated != 1 || m.NodesAway != test.count || len(c.nonTerminalAllocs()) != 1 {
				t.Fatalf("placed %d, metrics %+v", len(c.nonTerminalAllocs()), m)
			}
		})
	}
	t.Run("occupied", func(t *testing.T) {
		c := newCluster(t)
		away := node(1, suits)
		c.openNodeSession(away)
		distinct := func(j *fleet.Job) {
			j.Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts, RTarget: "true"}}
		}
		c.registerAndSchedule(job(1, distinct))
		c.missNodeHeartbeat(away.ID)
		if m := c.registerAndSchedule(job(2, distinct)).FailedTGAllocs["web"]; m == nil || m.NodesAway != 0 {
			t.Fatalf("metrics %+v", m)
		}
	})
}

// B4, B8, I14: no room: an evaluation waits, says for which classes, and goes on
// waiting as long as there is none.
func TestBlocked(t *testing.T) {
	c := newCluster(t)
	full, windows := node(0, func(n *fleet.Node) { n.Reserved.CPU = n.Resources.CPU }), node(1, func(n *fleet.Node) {
		n.Attributes["kernel.name"] = "windows"
		n.NodeClass = "desk"
	})
	c.openNodeSession(full)
	c.openNodeSession(windows)
	linux := func(j *fleet.Job) {
		j.Constraints = []fleet.Constraint{{LTarget: "${attr.kernel.name}", Operand: "=", RTarget: "linux"}}
	}
	e := c.registerAndSchedule(job(3, linux))
	v := c.store.View()
	blocked, ok := v.Eval(e.BlockedEval)
	if !ok || e.Status != fleet.EvalComplete || blocked.Status != fleet.EvalBlocked || blocked.TriggeredBy != fleet.TriggerQueuedAllocs {
		t.Fatalf("evaluation %+v, blocked %+v", e, blocked)
	}
	m := e.FailedTGAllocs["web"]
	if m == nil || m.NodesInPool != 2 || m.NodesAvailable["dc1"] != 2 || m.NodesExhausted != 1 || m.NodesFiltered != 1 ||
		m.CoalescedFailures != 2 || m.DimensionExhausted["cpu"] != 1 || m.ClassFiltered["desk"] != 1 ||
		m.ConstraintFiltered["${attr.kernel.name} = linux"] != 1 {
		t.Errorf("metrics %+v", m)
	}
	fullNode, _ := v.Node(full.ID)
	windowsNode, _ := v.Node(windows.ID)
	if got := blocked.ClassEligibility; len(got) != 2 || !got[fullNode.ComputedClass] || got[windowsNode.ComputedClass] || blocked.EscapedClass {
		t.Errorf("classes %v", got)
	}

	c.unblockEval(blocked.ID)
	again := c.scheduleEval(blocked.ID)
	if again.Status != fleet.EvalBlocked || len(c.plans) != 0 {
		t.Errorf("blocked again: %+v", again)
	}
	// Another evaluation of the job does not make a second one wait.
	e = c.registerAndSchedule(job(4, linux))
	if e.BlockedEval != blocked.ID {
		t.Errorf("waits in %s, want %s", e.BlockedEval, blocked.ID)
	}

	c.openNodeSession(node(2))
	c.unblockEval(blocked.ID)
	if done := c.scheduleEval(blocked.ID); done.Status != fleet.EvalComplete || len(c.nonTerminalAllocs()) != 4 {
		t.Errorf("%s with %d placed", done.Status, len(c.nonTerminalAllocs()))
	}
}

// A constraint on what is unique to a node says nothing about its class.
func TestEscapedClass(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(3)
	e := c.registerAndSchedule(job(1, func(j *fleet.Job) {
		j.Constraints = []fleet.Constraint{{LTarget: "${attr.unique.hostname}", Operand: "=", RTarget: "edge-7"}}
	}))
	blocked, _ := c.store.View().Eval(e.BlockedEval)
	if blocked == nil || !blocked.EscapedClass {
		t.Fatalf("blocked %+v", blocked)
	}
	c.openNodeSession(node(7))
	c.unblockEval(blocked.ID)
	c.scheduleEval(blocked.ID)
	if a := c.nonTerminalAllocs(); len(a) != 1 || a[0].NodeName != "edge-7" {
		t.Errorf("placed %v", names(a))
	}
}

// B5, B23: one group's trouble is not the other's.
func TestTwoGroups(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(2)
	e := c.registerAndSchedule(job(2, func(j *fleet.Job) {
		other := j.TaskGroups[0]
		other.Name, other.Constraints = "other", []fleet.Constraint{{LTarget: "${meta.none}", Operand: fleet.OpIsSet}}
		j.TaskGroups = append(j.TaskGroups, other)
	}))
	if got := names(c.nonTerminalAllocs()); got != "web.web[0] web.web[1]" {
		t.Errorf("placed %s", got)
	}
	if len(e.FailedTGAllocs) != 1 || e.FailedTGAllocs["other"].CoalescedFailures != 1 ||
		e.QueuedAllocations["other"] != 2 || e.QueuedAllocations["web"] != 0 {
		t.Errorf("failed %v, queued %v", e.FailedTGAllocs, e.QueuedAllocations)
	}
}

// B11: plans that are refused again and again.
func TestRefusedPlans(t *testing.T) {
	for _, typ := range []string{fleet.JobTypeService, fleet.JobTypeBatch} {
		t.Run(typ, func(t *testing.T) {
			c := newCluster(t)
			c.addReadyNodes(2)
			c.sub = func(p fleet.Plan) (fleet.PlanResult, bool) {
				rejected := map[fleet.NodeID]string{}
				for id := range p.NodeAllocation {
					rejected[id] = "somebody was faster"
				}
				return fleet.PlanResult{Rejected: rejected, RefreshIndex: c.store.View().Index()}, true
			}
			e := c.registerAndSchedule(job(3, func(j *fleet.Job) { j.Type = typ }))
			want := map[string]int{fleet.JobTypeService: 5, fleet.JobTypeBatch: 2}[typ]
			if e.Status != fleet.EvalFailed || len(c.plans) != want || e.QueuedAllocations["web"] != 3 {
				t.Errorf("%s after %d plans, queued %v", e.Status, len(c.plans), e.QueuedAllocations)
			}
			blocked, _ := c.store.View().Eval(e.BlockedEval)
			if blocked == nil || blocked.Status != fleet.EvalBlocked || blocked.TriggeredBy != fleet.TriggerMaxPlanAttempts {
				t.Fatalf("blocked %+v", blocked)
			}
			c.sub = nil
			c.unblockEval(blocked.ID)
			if done := c.scheduleEval(blocked.ID); done.Status != fleet.EvalComplete || len(c.nonTerminalAllocs()) != 3 {
				t.Errorf("%s with %d placed", done.Status, len(c.nonTerminalAllocs()))
			}
		})
	}
}

// What was committed in part is completed on a newer picture.
func TestPartialCommit(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(2)
	greedy := true
	c.sub = func(p fleet.Plan) (fleet.PlanResult, bool) {
		if !greedy {
			return fleet.PlanResult{}, false
		}
		greedy = false
		// Another job takes all of the first node before the plan is checked.
		id := node(0).ID
		c.mustApplyCommand(state.Plan{EvalID: "other", Jobs: []*fleet.Job{otherJob()}, Result: fleet.PlanResult{
			NodeAllocation: map[fleet.NodeID][]fleet.Alloc{id: {{
				ID: "other", Name: "other.web[0]", Namespace: fleet.DefaultNamespace, JobID: "other", NodeID: id, TaskGroup: "web",
				JobHash: otherJob().SpecHash, AllocatedResources: fleet.Resources{CPU: 13_900, MemoryMB: 100},
			}}},
		}})
		return fleet.PlanResult{}, false
	}
	e := c.registerAndSchedule(job(6))
	if e.Status != fleet.EvalComplete || len(c.nonTerminalAllocs()) != 6 || len(c.plans) != 2 {
		t.Fatalf("%s, %d placed, %d plans", e.Status, len(c.nonTerminalAllocs()), len(c.plans))
	}
	for _, a := range c.nonTerminalAllocs() {
		if a.NodeID != node(1).ID {
			t.Errorf("%s is on the full node", a.Name)
		}
	}
}

func otherJob() *fleet.Job {
	j := job(1, func(j *fleet.Job) { j.ID = "other" })
	spec, err := state.EncodeSpec(j)
	if err != nil {
		panic(err)
	}
	j.SpecHash = state.SpecHash(spec)
	return j
}

// B29: the new version has room only where the old one is: that stops first, and
// its place is taken when it has ended.
func TestDestructiveOnFullNode(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	big := func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU = 14000 }
	c.registerAndSchedule(job(1, big))
	old := c.nonTerminalAllocs()[0]
	c.reportAllocStatus(old, fleet.ClientRunning)

	e := c.registerAndSchedule(job(5, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU = 2000 }))
	if got, _ := c.store.View().Alloc(old.ID); got.DesiredStatus != fleet.DesiredStop || len(c.nonTerminalAllocs()) != 0 {
		t.Fatalf("the old one is to %s, %d alive", got.DesiredStatus, len(c.nonTerminalAllocs()))
	}
	if e.BlockedEval == "" || e.QueuedAllocations["web"] != 5 {
		t.Fatalf("evaluation %+v", e)
	}
	c.reportAllocStatus(old, fleet.ClientComplete)
	c.unblockEval(e.BlockedEval)
	if e := c.scheduleEval(e.BlockedEval); e.Status != fleet.EvalComplete || len(c.nonTerminalAllocs()) != 5 {
		t.Errorf("%s, %d alive", e.Status, len(c.nonTerminalAllocs()))
	}
	if got := c.nonTerminalAllocs()[0]; got.PreviousAllocation != old.ID {
		t.Errorf("%s replaces %q", got.Name, got.PreviousAllocation)
	}
}

// B26: where the new version fits nowhere, the old one runs on.
func TestDestructiveWithoutRoom(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(2)
	c.registerAndSchedule(job(2))
	e := c.registerAndSchedule(job(2, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.MemoryMB = 100_000 }))
	if len(c.nonTerminalAllocs()) != 2 || e.QueuedAllocations["web"] != 2 || e.FailedTGAllocs["web"].DimensionExhausted["memory"] != 2 {
		t.Errorf("%d alive, queued %v, %+v", len(c.nonTerminalAllocs()), e.QueuedAllocations, e.FailedTGAllocs["web"])
	}
	for _, a := range c.nonTerminalAllocs() {
		if a.JobVersion != 0 {
			t.Errorf("%s has version %d", a.Name, a.JobVersion)
		}
	}
}

// B26: with room, each is replaced and knows what it replaced.
func TestDestructive(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(3)
	c.registerAndSchedule(job(3))
	e := c.registerAndSchedule(job(3, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"} }))
	if e.Status != fleet.EvalComplete || len(c.entries) != 1 || len(c.webJobAllocs()) != 6 {
		t.Fatalf("%s, %d entries, %d allocations", e.Status, len(c.entries), len(c.webJobAllocs()))
	}
	for _, a := range c.nonTerminalAllocs() {
		prev, ok := c.store.View().Alloc(a.PreviousAllocation)
		if !ok || prev.NextAllocation != a.ID || prev.Name != a.Name || prev.DesiredStatus != fleet.DesiredStop || a.JobVersion != 1 {
			t.Errorf("%s after %+v", a.Name, prev)
		}
	}
}

// B25, B31: in place where the node suits the new version, elsewhere anew.
func TestInPlaceAndDatacenters(t *testing.T) {
	c := newCluster(t)
	c.openNodeSession(node(0))
	c.openNodeSession(node(1, func(n *fleet.Node) { n.Datacenter = "dc2" }))
	one := func(j *fleet.Job) { j.Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts}} }
	c.registerAndSchedule(job(2, one))
	before := map[string]fleet.AllocID{}
	for _, a := range c.nonTerminalAllocs() {
		before[a.NodeName] = a.ID
	}
	c.openNodeSession(node(2, func(n *fleet.Node) { n.Datacenter = "dc2" }))
	c.schedulePendingEvals()
	c.registerAndSchedule(job(2, one, func(j *fleet.Job) { j.Datacenters = []string{"dc2"} }))
	after := map[string]*fleet.Alloc{}
	for _, a := range c.nonTerminalAllocs() {
		after[a.NodeName] = a
	}
	if len(after) != 2 || after["edge-1"] == nil || after["edge-1"].ID != before["edge-1"] || after["edge-1"].JobVersion != 1 ||
		after["edge-2"] == nil || after["edge-2"].PreviousAllocation != before["edge-0"] {
		t.Errorf("before %v, after %v", before, names(c.nonTerminalAllocs()))
	}
}

// B47: a driver has to be there, and to work.
func TestDrivers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		node  func(*fleet.Node)
		place bool
	}{
		{"missing", func(n *fleet.Node) { n.Drivers = nil }, false},
		{"unhealthy", func(n *fleet.Node) { n.Drivers = map[string]fleet.DriverInfo{"sim": {Detected: true}} }, false},
		{"healthy", func(*fleet.Node) {}, true},
		{"attribute", func(n *fleet.Node) { n.Drivers, n.Attributes["driver.sim"] = nil, "1" }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t)
			c.addReadyNodes(1, tc.node)
			e := c.registerAndSchedule(job(1))
			if placed := len(c.nonTerminalAllocs()) == 1; placed != tc.place {
				t.Errorf("placed: %v", placed)
			}
			if !tc.place && e.FailedTGAllocs["web"].ConstraintFiltered["missing drivers"] != 1 {
				t.Errorf("metrics %+v", e.FailedTGAllocs["web"])
			}
		})
	}
}

// B49, B53: one host, one rack for each.
func TestDistinct(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(6) // in three racks
	hosts := func(j *fleet.Job) { j.TaskGroups[0].Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts}} }
	e := c.registerAndSchedule(job(7, hosts))
	seen := map[fleet.NodeID]bool{}
	for _, a := range c.nonTerminalAllocs() {
		seen[a.NodeID] = true
	}
	if len(seen) != 6 || e.QueuedAllocations["web"] != 1 || e.FailedTGAllocs["web"].ConstraintFiltered["distinct_hosts"] != 6 {
		t.Errorf("on %d nodes, queued %v, %+v", len(seen), e.QueuedAllocations, e.FailedTGAllocs["web"])
	}
	// A new version may stand where the old one stood.
	c.registerAndSchedule(job(6, hosts, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"} }))
	if got := c.nonTerminalAllocs(); len(got) != 6 || got[0].JobVersion != 1 {
		t.Errorf("%d alive", len(got))
	}

	c = newCluster(t)
	c.addReadyNodes(6)
	e = c.registerAndSchedule(job(7, func(j *fleet.Job) {
		j.Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctProp, LTarget: "${meta.rack}", RTarget: "2"}}
	}))
	racks := map[string]int{}
	for _, a := range c.nonTerminalAllocs() {
		n, _ := c.store.View().Node(a.NodeID)
		racks[n.Meta["rack"]]++
	}
	if fmt.Sprint(racks) != "map[0:2 1:2 2:2]" || e.QueuedAllocations["web"] != 1 {
		t.Errorf("racks %v, queued %v", racks, e.QueuedAllocations)
	}
}

// B62, B64, B83: the numbers.
func TestScores(t *testing.T) {
	half := func(j *fleet.Job) {
		j.TaskGroups[0].Tasks[0].Resources.Resources = fleet.Resources{CPU: 7000, MemoryMB: 4096}
	}
	full := func(j *fleet.Job) {
		j.TaskGroups[0].Tasks[0].Resources.Resources = fleet.Resources{CPU: 14000, MemoryMB: 8192}
	}
	c := newCluster(t)
	c.addReadyNodes(1)
	for _, tc := range []struct {
		job  *fleet.Job
		want string
	}{
		{job(1, half), "0.760"}, // 13.675 of 18
		{job(1, full), "1.000"},
		{job(2, half), "0.760 0.000"}, // the second: (1 - 2/2) / 2
	} {
		out, err := scheduler.DryRun(c.store.View(), tc.job, c.now)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range out.Placements {
			got = append(got, fmt.Sprintf("%.3f", a.Score))
			if a.Metrics.ScoreMetaData[0].NormScore != a.Score {
				t.Errorf("metrics %+v of score %v", a.Metrics, a.Score)
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("scores %v, want %s", got, tc.want)
		}
	}
	if c.registerAndSchedule(job(0)); len(c.webJobAllocs()) != 0 {
		t.Error("a dry run has left something")
	}
}

// A failed allocation goes elsewhere, where there is such a place, and carries
// its history.
func TestReschedule(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(2)
	c.registerAndSchedule(job(1))
	first := c.nonTerminalAllocs()[0]
	c.reportAllocStatus(first, fleet.ClientFailed)
	c.schedulePendingEvals()
	second := c.nonTerminalAllocs()[0]
	if second.NodeID == first.NodeID || second.PreviousAllocation != first.ID || len(second.RescheduleTracker.Events) != 1 {
		t.Fatalf("second %+v", second)
	}
	if got, _ := c.store.View().Alloc(first.ID); got.DesiredStatus != fleet.DesiredStop || got.NextAllocation != second.ID {
		t.Errorf("first %+v", got)
	}

	c = newCluster(t)
	c.addReadyNodes(1)
	c.registerAndSchedule(job(1))
	c.reportAllocStatus(c.nonTerminalAllocs()[0], fleet.ClientFailed)
	c.schedulePendingEvals()
	if got := c.nonTerminalAllocs(); len(got) != 1 || len(got[0].Metrics.ScoreMetaData[0].Scores) != 2 {
		t.Errorf("with one node: %v", names(got))
	}
}

// A link is cut and healed: unknown, replaced, settled, each in one entry.
func TestAbsence(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(2)
	lost := 10 * time.Minute
	c.registerAndSchedule(job(4, func(j *fleet.Job) {
		j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &lost, Reconcile: fleet.ReconcileKeepOriginal}
	}))
	for _, a := range c.nonTerminalAllocs() {
		c.reportAllocStatus(a, fleet.ClientRunning)
	}
	id := node(0).ID
	here := len(c.allocsOnNode(id))
	if here == 0 || here == 4 {
		t.Fatalf("%d of 4 on one node", here)
	}
	c.missNodeHeartbeat(id)
	c.schedulePendingEvals()
	if len(c.entries) != 1 || len(c.nonTerminalAllocs()) != 4+here {
		t.Fatalf("%d entries, %d alive", len(c.entries), len(c.nonTerminalAllocs()))
	}
	var followUp fleet.EvalID
	for _, a := range c.allocsOnNode(id) {
		if a.ClientStatus != fleet.ClientUnknown || a.FollowupEvalID == "" || !a.NeedsToReconnect() {
			t.Errorf("away: %+v", a)
		}
		followUp = a.FollowupEvalID
	}
	for _, a := range c.nonTerminalAllocs() {
		if a.NodeID != id {
			c.reportAllocStatus(a, fleet.ClientRunning)
		}
	}
	c.now = c.now.Add(time.Minute)
	c.openNodeSession(node(0))
	c.schedulePendingEvals()
	if got := c.nonTerminalAllocs(); len(got) != 4 || len(c.entries) != 1 {
		t.Fatalf("%d alive after %d entries: %s", len(got), len(c.entries), names(got))
	}
	if got := c.allocsOnNode(id); len(got) != here || got[0].ClientStatus != fleet.ClientRunning || got[0].NeedsToReconnect() || got[0].FollowupEvalID != "" {
		t.Errorf("%d are back: %+v", len(got), got[0])
	}
	if e, _ := c.store.View().Eval(followUp); e.Status != fleet.EvalCanceled {
		t.Errorf("the window's evaluation is %s", e.Status)
	}
	if err := c.store.View().Check(); err != nil {
		t.Error(err)
	}
}

// The window of an absence ends by the leader's clock, also where the clock of the hub that
// decides is behind: the evaluation would come again and again until it has caught up.
func TestAbsenceEndsByTheLeadersClock(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	lost, no := 10*time.Minute, false
	c.registerAndSchedule(job(1, func(j *fleet.Job) { j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &lost, Replace: &no} }))
	a := c.nonTerminalAllocs()[0]
	c.reportAllocStatus(a, fleet.ClientRunning)
	c.missNodeHeartbeat(a.NodeID)
	c.schedulePendingEvals()
	away, _ := c.store.View().Alloc(a.ID)
	end, ok := c.store.View().Eval(away.FollowupEvalID)
	if !ok {
		t.Fatalf("nothing ends the absence of %+v", away)
	}
	c.now = end.WaitUntil.Add(-3 * time.Second)
	c.scheduleEval(end.ID)
	if got, _ := c.store.View().Alloc(a.ID); got.ClientStatus != fleet.ClientLost {
		t.Errorf("when its window is over it is %s", got.ClientStatus)
	}
	for e := range c.store.View().EvalsByJob(a.Namespace, a.JobID) {
		if e.PreviousEval == end.ID && e.TriggeredBy == fleet.TriggerDisconnectTimeout {
			t.Errorf("it is put off until %s", e.WaitUntil)
		}
	}
}

// allocsOnNode lists what is alive on a node.
func (c *cluster) allocsOnNode(id fleet.NodeID) []*fleet.Alloc {
	var out []*fleet.Alloc
	for _, a := range c.nonTerminalAllocs() {
		if a.NodeID == id {
			out = append(out, a)
		}
	}
	return out
}

func TestStopAndPurge(t *testing.T) {
	for _, purge := range []bool{false, true} {
		c := newCluster(t)
		c.addReadyNodes(2)
		c.registerAndSchedule(job(3))
		e := &fleet.Evaluation{
			ID: fleet.EvalID(c.newID()), Namespace: fleet.DefaultNamespace, JobID: "web", Type: fleet.JobTypeService, Priority: 50,
			TriggeredBy: fleet.TriggerJobDeregister, Status: fleet.EvalPending,
		}
		c.mustApplyCommand(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "web", Purge: purge, Eval: e, Now: c.now.UnixNano()})
		if done := c.scheduleEval(e.ID); done.Status != fleet.EvalComplete || len(c.nonTerminalAllocs()) != 0 || len(c.webJobAllocs()) != 3 {
			t.Errorf("purge %v: %s, %d alive", purge, done.Status, len(c.nonTerminalAllocs()))
		}
	}
}

// The same job on the same state goes onto the same nodes.
func TestDeterministic(t *testing.T) {
	var first string
	for range 3 {
		c := newCluster(t)
		c.addReadyNodes(200)
		c.registerAndSchedule(job(20))
		var where []string
		for _, a := range c.nonTerminalAllocs() {
			where = append(where, a.NodeName)
		}
		got := strings.Join(where, " ")
		if first == "" {
			first = got
		}
		if got != first {
			t.Fatalf("%s\n%s", got, first)
		}
	}
}

// Nodes that take no new work get none.
func TestNodesThatTakeNone(t *testing.T) {
	c := newCluster(t)
	c.openNodeSession(node(0))
	c.openNodeSession(node(1))
	c.openNodeSession(node(2, func(n *fleet.Node) { n.NodePool = "ships" }))
	c.mustApplyCommand(state.NodeEligibility{NodeID: node(0).ID, Eligibility: fleet.NodeIneligible, EvalSeed: "s", Now: c.now.UnixNano()})
	c.missNodeHeartbeat(node(1).ID)
	e := c.registerAndSchedule(job(1))
	if len(c.nonTerminalAllocs()) != 0 || e.FailedTGAllocs["web"].NodesInPool != 0 {
		t.Errorf("placed %s, %+v", names(c.nonTerminalAllocs()), e.FailedTGAllocs["web"])
	}
	out, err := scheduler.DryRun(c.store.View(), job(1), c.now)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(out.Reasons, "\n"); !strings.Contains(got, "no node of the pool is ready") {
		t.Errorf("reasons:\n%s", got)
	}
}

// H17: a job that was stopped and is registered again on a full node gets its new
// allocation when the edge has said that the old one ended, and not before.
func TestRegisteredAgainOnAFullNode(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	full := func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU = 9000 }
	c.registerAndSchedule(job(1, full))
	old := c.nonTerminalAllocs()[0]
	c.reportAllocStatus(old, fleet.ClientRunning)
	stop := &fleet.Evaluation{ID: "stop", Namespace: fleet.DefaultNamespace, JobID: "web", Type: fleet.JobTypeService, Priority: 50, Status: fleet.EvalPending}
	c.mustApplyCommand(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "web", Eval: stop})
	c.scheduleEval("stop")
	e := c.registerAndSchedule(job(1, full))
	if e.BlockedEval == "" || len(c.nonTerminalAllocs()) != 0 {
		t.Fatalf("%d alive beside one that runs: %+v", len(c.nonTerminalAllocs()), e)
	}
	c.reportAllocStatus(old, fleet.ClientComplete)
	c.unblockEval(e.BlockedEval)
	if e := c.scheduleEval(e.BlockedEval); e.Status != fleet.EvalComplete || len(c.nonTerminalAllocs()) != 1 || c.nonTerminalAllocs()[0].ID == old.ID {
		t.Errorf("%s, %d alive", e.Status, len(c.nonTerminalAllocs()))
	}
}

// TestFailedWithoutRoom has the replacement of a failed allocation find no room: that is
// stopped, its tracker says why, and its history goes on when there is room.
func TestFailedWithoutRoom(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	c.registerAndSchedule(job(1))
	first := c.nonTerminalAllocs()[0]
	c.reportAllocStatus(first, fleet.ClientFailed)
	c.schedulePendingEvals()
	second := c.nonTerminalAllocs()[0]
	c.setNodeEligibility(second.NodeID, fleet.NodeIneligible)
	c.reportAllocStatus(second, fleet.ClientFailed)
	c.schedulePendingEvals()
	failed, _ := c.store.View().Alloc(second.ID)
	if !failed.AwaitsPlacement() || len(failed.RescheduleTracker.Events) != 1 || len(c.nonTerminalAllocs()) != 0 {
		t.Fatalf("%s/%s, %+v", failed.DesiredStatus, failed.ClientStatus, failed.RescheduleTracker)
	}
	var waits *fleet.Evaluation
	for e := range c.store.View().EvalsByJob(fleet.DefaultNamespace, "web") {
		if e.Status == fleet.EvalBlocked {
			waits = e
		}
	}
	if waits == nil || waits.QueuedAllocations["web"] != 1 {
		t.Fatalf("it waits for room: %+v", waits)
	}
	// Looked at again without room: nothing changes.
	c.unblockEval(waits.ID)
	c.scheduleEval(waits.ID)
	if again, _ := c.store.View().Alloc(second.ID); again.ModifyIndex != failed.ModifyIndex || len(c.plans) != 0 {
		t.Errorf("changed at %d, by %d plans", again.ModifyIndex, len(c.plans))
	}
	c.setNodeEligibility(second.NodeID, fleet.NodeEligible)
	c.unblockEval(waits.ID)
	c.schedulePendingEvals()
	if len(c.nonTerminalAllocs()) != 1 {
		t.Fatalf("%d placed when there is room", len(c.nonTerminalAllocs()))
	}
	third := c.nonTerminalAllocs()[0]
	failed, _ = c.store.View().Alloc(second.ID)
	if tr := third.RescheduleTracker; len(tr.Events) != 2 || tr.LastReschedule != fleet.RescheduleOK || tr.Events[1].PrevAllocID != second.ID || failed.AwaitsPlacement() {
		t.Errorf("its tracker: %+v", tr)
	}
}

// TestEndedIsRetired has allocations end by themselves. One that completed, or that is not needed
// any more, keeps its desired status; one that failed and is replaced is stopped. No later
// evaluation replaces any of them again, and their names are free.
func TestEndedIsRetired(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(2)
	spec := func(count int) *fleet.Job {
		return job(count, func(j *fleet.Job) { j.TaskGroups[0].ReschedulePolicy = &fleet.ReschedulePolicy{Unlimited: true} })
	}
	c.registerAndSchedule(spec(2))
	completed, failed := c.nonTerminalAllocs()[0], c.nonTerminalAllocs()[1]
	c.reportAllocStatus(completed, fleet.ClientComplete)
	c.reportAllocStatus(failed, fleet.ClientFailed)
	c.schedulePendingEvals()
	for range 2 {
		if got := names(c.nonTerminalAllocs()); got != "web.web[0] web.web[1]" {
			t.Fatalf("alive: %s", got)
		}
		c.registerAndSchedule(spec(2))
	}
	v := c.store.View()
	if a, _ := v.Alloc(completed.ID); a.DesiredStatus != fleet.DesiredRun || !a.Retired || a.NextAllocation == "" {
		t.Errorf("what completed is to %s, retired %v, replaced by %q", a.DesiredStatus, a.Retired, a.NextAllocation)
	}
	if a, _ := v.Alloc(failed.ID); a.DesiredStatus != fleet.DesiredStop || a.Retired {
		t.Errorf("what failed is to %s, retired %v", a.DesiredStatus, a.Retired)
	}
	surplus := c.nonTerminalAllocs()[1]
	c.reportAllocStatus(surplus, fleet.ClientComplete)
	c.registerAndSchedule(spec(1))
	if a, _ := c.store.View().Alloc(surplus.ID); a.DesiredStatus != fleet.DesiredRun || !a.Retired {
		t.Errorf("what is not needed and completed is to %s, retired %v", a.DesiredStatus, a.Retired)
	}
	c.registerAndSchedule(spec(2))
	if got := names(c.nonTerminalAllocs()); got != "web.web[0] web.web[1]" {
		t.Errorf("alive again: %s", got)
	}
}

// TestStopLeavesWhatEnded stops jobs of which something has ended by itself: that gets no new
// desired status. Registered again, the job starts afresh, whatever its policy says of that.
func TestStopLeavesWhatEnded(t *testing.T) {
	for _, tc := range []struct{ jobType, status string }{
		{fleet.JobTypeService, fleet.ClientFailed}, {fleet.JobTypeBatch, fleet.ClientComplete}, {fleet.JobTypeBatch, fleet.ClientFailed},
	} {
		for _, purge := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %s, purge %v", tc.jobType, tc.status, purge), func(t *testing.T) {
				c := newCluster(t)
				c.addReadyNodes(1)
				spec := func() *fleet.Job {
					return job(2, func(j *fleet.Job) { j.Type, j.TaskGroups[0].ReschedulePolicy = tc.jobType, &fleet.ReschedulePolicy{} })
				}
				c.registerAndSchedule(spec())
				ended, running := c.nonTerminalAllocs()[0], c.nonTerminalAllocs()[1]
				c.reportAllocStatus(ended, tc.status)
				c.reportAllocStatus(running, fleet.ClientRunning)
				c.schedulePendingEvals()
				stop := &fleet.Evaluation{ID: fleet.EvalID(c.newID()), Status: fleet.EvalPending, TriggeredBy: fleet.TriggerJobDeregister}
				c.mustApplyCommand(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "web", Purge: purge, Eval: stop, Now: c.now.UnixNano()})
				c.schedulePendingEvals()
				ended, _ = c.store.View().Alloc(ended.ID)
				running, _ = c.store.View().Alloc(running.ID)
				if ended.DesiredStatus != fleet.DesiredRun || running.DesiredStatus != fleet.DesiredStop {
					t.Errorf("what had ended is to %s, what runs is to %s", ended.DesiredStatus, running.DesiredStatus)
				}
				c.reportAllocStatus(running, fleet.ClientComplete)
				if e := c.nextPendingEval(); e != nil {
					t.Errorf("an evaluation is left: %+v", e)
				}
				c.registerAndSchedule(spec())
				if got := names(c.nonTerminalAllocs()); got != "web.web[0] web.web[1]" {
					t.Errorf("registered again: %s", got)
				}
			})
		}
	}
}
