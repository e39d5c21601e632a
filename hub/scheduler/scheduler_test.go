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
	c.nodes(10)
	e := c.register(job(3))
	if e.Status != fleet.EvalComplete || e.QueuedAllocations["web"] != 0 || e.SnapshotIndex == 0 {
		t.Errorf("evaluation %+v", e)
	}
	if got := names(c.alive()); got != "web.web[0] web.web[1] web.web[2]" {
		t.Errorf("placed %s", got)
	}
	if len(c.entries) != 1 {
		t.Errorf("%d entries, want 1", len(c.entries))
	}
	for _, a := range c.alive() {
		if a.JobHash == "" || a.Job == nil || a.EvalID != e.ID || a.Score <= 0 || a.Metrics == nil || a.DesiredDescription == "" ||
			a.AllocatedResources != (fleet.Resources{CPU: 500, MemoryMB: 256, DiskMB: 150}) {
			t.Errorf("allocation %+v", a)
		}
	}
}

// B2: nothing to do is one update of the evaluation.
func TestCountZero(t *testing.T) {
	c := newCluster(t)
	e := c.register(job(0))
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
			c.open(near)
			c.open(away)
			c.miss(away.ID)
			e := c.register(job(3, func(j *fleet.Job) {
				j.Datacenters = []string{"dc1"}
				j.Constraints = []fleet.Constraint{
					{Operand: fleet.OpDistinctHosts, RTarget: "true"},
					{LTarget: "${attr.kernel.name}", Operand: "=", RTarget: "linux"},
				}
			}))
			m := e.FailedTGAllocs["web"]
			if m == nil || m.NodesEvaluated != 1 || m.NodesAway != test.count || len(c.alive()) != 1 {
				t.Fatalf("placed %d, metrics %+v", len(c.alive()), m)
			}
		})
	}
	t.Run("occupied", func(t *testing.T) {
		c := newCluster(t)
		away := node(1, suits)
		c.open(away)
		distinct := func(j *fleet.Job) {
			j.Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts, RTarget: "true"}}
		}
		c.register(job(1, distinct))
		c.miss(away.ID)
		if m := c.register(job(2, distinct)).FailedTGAllocs["web"]; m == nil || m.NodesAway != 0 {
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
	c.open(full)
	c.open(windows)
	linux := func(j *fleet.Job) {
		j.Constraints = []fleet.Constraint{{LTarget: "${attr.kernel.name}", Operand: "=", RTarget: "linux"}}
	}
	e := c.register(job(3, linux))
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

	c.unblock(blocked.ID)
	again := c.schedule(blocked.ID)
	if again.Status != fleet.EvalBlocked || len(c.plans) != 0 {
		t.Errorf("blocked again: %+v", again)
	}
	// Another evaluation of the job does not make a second one wait.
	e = c.register(job(4, linux))
	if e.BlockedEval != blocked.ID {
		t.Errorf("waits in %s, want %s", e.BlockedEval, blocked.ID)
	}

	c.open(node(2))
	c.unblock(blocked.ID)
	if done := c.schedule(blocked.ID); done.Status != fleet.EvalComplete || len(c.alive()) != 4 {
		t.Errorf("%s with %d placed", done.Status, len(c.alive()))
	}
}

// A constraint on what is unique to a node says nothing about its class.
func TestEscapedClass(t *testing.T) {
	c := newCluster(t)
	c.nodes(3)
	e := c.register(job(1, func(j *fleet.Job) {
		j.Constraints = []fleet.Constraint{{LTarget: "${attr.unique.hostname}", Operand: "=", RTarget: "edge-7"}}
	}))
	blocked, _ := c.store.View().Eval(e.BlockedEval)
	if blocked == nil || !blocked.EscapedClass {
		t.Fatalf("blocked %+v", blocked)
	}
	c.open(node(7))
	c.unblock(blocked.ID)
	c.schedule(blocked.ID)
	if a := c.alive(); len(a) != 1 || a[0].NodeName != "edge-7" {
		t.Errorf("placed %v", names(a))
	}
}

// B5, B23: one group's trouble is not the other's.
func TestTwoGroups(t *testing.T) {
	c := newCluster(t)
	c.nodes(2)
	e := c.register(job(2, func(j *fleet.Job) {
		other := j.TaskGroups[0]
		other.Name, other.Constraints = "other", []fleet.Constraint{{LTarget: "${meta.none}", Operand: fleet.OpIsSet}}
		j.TaskGroups = append(j.TaskGroups, other)
	}))
	if got := names(c.alive()); got != "web.web[0] web.web[1]" {
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
			c.nodes(2)
			c.sub = func(p fleet.Plan) (fleet.PlanResult, bool) {
				rejected := map[fleet.NodeID]string{}
				for id := range p.NodeAllocation {
					rejected[id] = "somebody was faster"
				}
				return fleet.PlanResult{Rejected: rejected, RefreshIndex: c.store.View().Index()}, true
			}
			e := c.register(job(3, func(j *fleet.Job) { j.Type = typ }))
			want := map[string]int{fleet.JobTypeService: 5, fleet.JobTypeBatch: 2}[typ]
			if e.Status != fleet.EvalFailed || len(c.plans) != want || e.QueuedAllocations["web"] != 3 {
				t.Errorf("%s after %d plans, queued %v", e.Status, len(c.plans), e.QueuedAllocations)
			}
			blocked, _ := c.store.View().Eval(e.BlockedEval)
			if blocked == nil || blocked.Status != fleet.EvalBlocked || blocked.TriggeredBy != fleet.TriggerMaxPlanAttempts {
				t.Fatalf("blocked %+v", blocked)
			}
			c.sub = nil
			c.unblock(blocked.ID)
			if done := c.schedule(blocked.ID); done.Status != fleet.EvalComplete || len(c.alive()) != 3 {
				t.Errorf("%s with %d placed", done.Status, len(c.alive()))
			}
		})
	}
}

// What was committed in part is completed on a newer picture.
func TestPartialCommit(t *testing.T) {
	c := newCluster(t)
	c.nodes(2)
	greedy := true
	c.sub = func(p fleet.Plan) (fleet.PlanResult, bool) {
		if !greedy {
			return fleet.PlanResult{}, false
		}
		greedy = false
		// Another job takes all of the first node before the plan is checked.
		id := node(0).ID
		c.apply(state.Plan{EvalID: "other", Jobs: []*fleet.Job{other()}, Result: fleet.PlanResult{
			NodeAllocation: map[fleet.NodeID][]fleet.Alloc{id: {{
				ID: "other", Name: "other.web[0]", Namespace: fleet.DefaultNamespace, JobID: "other", NodeID: id, TaskGroup: "web",
				JobHash: other().SpecHash, AllocatedResources: fleet.Resources{CPU: 13_900, MemoryMB: 100},
			}}},
		}})
		return fleet.PlanResult{}, false
	}
	e := c.register(job(6))
	if e.Status != fleet.EvalComplete || len(c.alive()) != 6 || len(c.plans) != 2 {
		t.Fatalf("%s, %d placed, %d plans", e.Status, len(c.alive()), len(c.plans))
	}
	for _, a := range c.alive() {
		if a.NodeID != node(1).ID {
			t.Errorf("%s is on the full node", a.Name)
		}
	}
}

func other() *fleet.Job {
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
	c.nodes(1)
	big := func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU = 14000 }
	c.register(job(1, big))
	old := c.alive()[0]
	c.report(old, fleet.ClientRunning)

	e := c.register(job(5, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU = 2000 }))
	if got, _ := c.store.View().Alloc(old.ID); got.DesiredStatus != fleet.DesiredStop || len(c.alive()) != 0 {
		t.Fatalf("the old one is to %s, %d alive", got.DesiredStatus, len(c.alive()))
	}
	if e.BlockedEval == "" || e.QueuedAllocations["web"] != 5 {
		t.Fatalf("evaluation %+v", e)
	}
	c.report(old, fleet.ClientComplete)
	c.unblock(e.BlockedEval)
	if e := c.schedule(e.BlockedEval); e.Status != fleet.EvalComplete || len(c.alive()) != 5 {
		t.Errorf("%s, %d alive", e.Status, len(c.alive()))
	}
	if got := c.alive()[0]; got.PreviousAllocation != old.ID {
		t.Errorf("%s replaces %q", got.Name, got.PreviousAllocation)
	}
}

// B26: where the new version fits nowhere, the old one runs on.
func TestDestructiveWithoutRoom(t *testing.T) {
	c := newCluster(t)
	c.nodes(2)
	c.register(job(2))
	e := c.register(job(2, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.MemoryMB = 100_000 }))
	if len(c.alive()) != 2 || e.QueuedAllocations["web"] != 2 || e.FailedTGAllocs["web"].DimensionExhausted["memory"] != 2 {
		t.Errorf("%d alive, queued %v, %+v", len(c.alive()), e.QueuedAllocations, e.FailedTGAllocs["web"])
	}
	for _, a := range c.alive() {
		if a.JobVersion != 0 {
			t.Errorf("%s has version %d", a.Name, a.JobVersion)
		}
	}
}

// B26: with room, each is replaced and knows what it replaced.
func TestDestructive(t *testing.T) {
	c := newCluster(t)
	c.nodes(3)
	c.register(job(3))
	e := c.register(job(3, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"} }))
	if e.Status != fleet.EvalComplete || len(c.entries) != 1 || len(c.allocs()) != 6 {
		t.Fatalf("%s, %d entries, %d allocations", e.Status, len(c.entries), len(c.allocs()))
	}
	for _, a := range c.alive() {
		prev, ok := c.store.View().Alloc(a.PreviousAllocation)
		if !ok || prev.NextAllocation != a.ID || prev.Name != a.Name || prev.DesiredStatus != fleet.DesiredStop || a.JobVersion != 1 {
			t.Errorf("%s after %+v", a.Name, prev)
		}
	}
}

// B25, B31: in place where the node suits the new version, elsewhere anew.
func TestInPlaceAndDatacenters(t *testing.T) {
	c := newCluster(t)
	c.open(node(0))
	c.open(node(1, func(n *fleet.Node) { n.Datacenter = "dc2" }))
	one := func(j *fleet.Job) { j.Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts}} }
	c.register(job(2, one))
	before := map[string]fleet.AllocID{}
	for _, a := range c.alive() {
		before[a.NodeName] = a.ID
	}
	c.open(node(2, func(n *fleet.Node) { n.Datacenter = "dc2" }))
	c.settle()
	c.register(job(2, one, func(j *fleet.Job) { j.Datacenters = []string{"dc2"} }))
	after := map[string]*fleet.Alloc{}
	for _, a := range c.alive() {
		after[a.NodeName] = a
	}
	if len(after) != 2 || after["edge-1"] == nil || after["edge-1"].ID != before["edge-1"] || after["edge-1"].JobVersion != 1 ||
		after["edge-2"] == nil || after["edge-2"].PreviousAllocation != before["edge-0"] {
		t.Errorf("before %v, after %v", before, names(c.alive()))
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
			c.nodes(1, tc.node)
			e := c.register(job(1))
			if placed := len(c.alive()) == 1; placed != tc.place {
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
	c.nodes(6) // in three racks
	hosts := func(j *fleet.Job) { j.TaskGroups[0].Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts}} }
	e := c.register(job(7, hosts))
	seen := map[fleet.NodeID]bool{}
	for _, a := range c.alive() {
		seen[a.NodeID] = true
	}
	if len(seen) != 6 || e.QueuedAllocations["web"] != 1 || e.FailedTGAllocs["web"].ConstraintFiltered["distinct_hosts"] != 6 {
		t.Errorf("on %d nodes, queued %v, %+v", len(seen), e.QueuedAllocations, e.FailedTGAllocs["web"])
	}
	// A new version may stand where the old one stood.
	c.register(job(6, hosts, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"} }))
	if got := c.alive(); len(got) != 6 || got[0].JobVersion != 1 {
		t.Errorf("%d alive", len(got))
	}

	c = newCluster(t)
	c.nodes(6)
	e = c.register(job(7, func(j *fleet.Job) {
		j.Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctProp, LTarget: "${meta.rack}", RTarget: "2"}}
	}))
	racks := map[string]int{}
	for _, a := range c.alive() {
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
	c.nodes(1)
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
	if c.register(job(0)); len(c.allocs()) != 0 {
		t.Error("a dry run has left something")
	}
}

// A failed allocation goes elsewhere, where there is such a place, and carries
// its history.
func TestReschedule(t *testing.T) {
	c := newCluster(t)
	c.nodes(2)
	c.register(job(1))
	first := c.alive()[0]
	c.report(first, fleet.ClientFailed)
	c.settle()
	second := c.alive()[0]
	if second.NodeID == first.NodeID || second.PreviousAllocation != first.ID || len(second.RescheduleTracker.Events) != 1 {
		t.Fatalf("second %+v", second)
	}
	if got, _ := c.store.View().Alloc(first.ID); got.DesiredStatus != fleet.DesiredStop || got.NextAllocation != second.ID {
		t.Errorf("first %+v", got)
	}

	c = newCluster(t)
	c.nodes(1)
	c.register(job(1))
	c.report(c.alive()[0], fleet.ClientFailed)
	c.settle()
	if got := c.alive(); len(got) != 1 || len(got[0].Metrics.ScoreMetaData[0].Scores) != 2 {
		t.Errorf("with one node: %v", names(got))
	}
}

// A link is cut and healed: unknown, replaced, settled, each in one entry.
func TestAbsence(t *testing.T) {
	c := newCluster(t)
	c.nodes(2)
	lost := 10 * time.Minute
	c.register(job(4, func(j *fleet.Job) {
		j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &lost, Reconcile: fleet.ReconcileKeepOriginal}
	}))
	for _, a := range c.alive() {
		c.report(a, fleet.ClientRunning)
	}
	id := node(0).ID
	here := len(c.on(id))
	if here == 0 || here == 4 {
		t.Fatalf("%d of 4 on one node", here)
	}
	c.miss(id)
	c.settle()
	if len(c.entries) != 1 || len(c.alive()) != 4+here {
		t.Fatalf("%d entries, %d alive", len(c.entries), len(c.alive()))
	}
	var followUp fleet.EvalID
	for _, a := range c.on(id) {
		if a.ClientStatus != fleet.ClientUnknown || a.FollowupEvalID == "" || !a.NeedsToReconnect() {
			t.Errorf("away: %+v", a)
		}
		followUp = a.FollowupEvalID
	}
	for _, a := range c.alive() {
		if a.NodeID != id {
			c.report(a, fleet.ClientRunning)
		}
	}
	c.now = c.now.Add(time.Minute)
	c.open(node(0))
	c.settle()
	if got := c.alive(); len(got) != 4 || len(c.entries) != 1 {
		t.Fatalf("%d alive after %d entries: %s", len(got), len(c.entries), names(got))
	}
	if got := c.on(id); len(got) != here || got[0].ClientStatus != fleet.ClientRunning || got[0].NeedsToReconnect() || got[0].FollowupEvalID != "" {
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
	c.nodes(1)
	lost, no := 10*time.Minute, false
	c.register(job(1, func(j *fleet.Job) { j.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &lost, Replace: &no} }))
	a := c.alive()[0]
	c.report(a, fleet.ClientRunning)
	c.miss(a.NodeID)
	c.settle()
	away, _ := c.store.View().Alloc(a.ID)
	end, ok := c.store.View().Eval(away.FollowupEvalID)
	if !ok {
		t.Fatalf("nothing ends the absence of %+v", away)
	}
	c.now = end.WaitUntil.Add(-3 * time.Second)
	c.schedule(end.ID)
	if got, _ := c.store.View().Alloc(a.ID); got.ClientStatus != fleet.ClientLost {
		t.Errorf("when its window is over it is %s", got.ClientStatus)
	}
	for e := range c.store.View().EvalsByJob(a.Namespace, a.JobID) {
		if e.PreviousEval == end.ID && e.TriggeredBy == fleet.TriggerDisconnectTimeout {
			t.Errorf("it is put off until %s", e.WaitUntil)
		}
	}
}

// on lists what is alive on a node.
func (c *cluster) on(id fleet.NodeID) []*fleet.Alloc {
	var out []*fleet.Alloc
	for _, a := range c.alive() {
		if a.NodeID == id {
			out = append(out, a)
		}
	}
	return out
}

func TestStopAndPurge(t *testing.T) {
	for _, purge := range []bool{false, true} {
		c := newCluster(t)
		c.nodes(2)
		c.register(job(3))
		e := &fleet.Evaluation{
			ID: fleet.EvalID(c.newID()), Namespace: fleet.DefaultNamespace, JobID: "web", Type: fleet.JobTypeService, Priority: 50,
			TriggeredBy: fleet.TriggerJobDeregister, Status: fleet.EvalPending,
		}
		c.apply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "web", Purge: purge, Eval: e, Now: c.now.UnixNano()})
		if done := c.schedule(e.ID); done.Status != fleet.EvalComplete || len(c.alive()) != 0 || len(c.allocs()) != 3 {
			t.Errorf("purge %v: %s, %d alive", purge, done.Status, len(c.alive()))
		}
	}
}

// The same job on the same state goes onto the same nodes.
func TestDeterministic(t *testing.T) {
	var first string
	for range 3 {
		c := newCluster(t)
		c.nodes(200)
		c.register(job(20))
		var where []string
		for _, a := range c.alive() {
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
	c.open(node(0))
	c.open(node(1))
	c.open(node(2, func(n *fleet.Node) { n.NodePool = "ships" }))
	c.apply(state.NodeEligibility{NodeID: node(0).ID, Eligibility: fleet.NodeIneligible, EvalSeed: "s", Now: c.now.UnixNano()})
	c.miss(node(1).ID)
	e := c.register(job(1))
	if len(c.alive()) != 0 || e.FailedTGAllocs["web"].NodesInPool != 0 {
		t.Errorf("placed %s, %+v", names(c.alive()), e.FailedTGAllocs["web"])
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
	c.nodes(1)
	full := func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU = 9000 }
	c.register(job(1, full))
	old := c.alive()[0]
	c.report(old, fleet.ClientRunning)
	stop := &fleet.Evaluation{ID: "stop", Namespace: fleet.DefaultNamespace, JobID: "web", Type: fleet.JobTypeService, Priority: 50, Status: fleet.EvalPending}
	c.apply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "web", Eval: stop})
	c.schedule("stop")
	e := c.register(job(1, full))
	if e.BlockedEval == "" || len(c.alive()) != 0 {
		t.Fatalf("%d alive beside one that runs: %+v", len(c.alive()), e)
	}
	c.report(old, fleet.ClientComplete)
	c.unblock(e.BlockedEval)
	if e := c.schedule(e.BlockedEval); e.Status != fleet.EvalComplete || len(c.alive()) != 1 || c.alive()[0].ID == old.ID {
		t.Errorf("%s, %d alive", e.Status, len(c.alive()))
	}
}

// TestFailedWithoutRoom has the replacement of a failed allocation find no room: that is
// stopped, its tracker says why, and its history goes on when there is room.
func TestFailedWithoutRoom(t *testing.T) {
	c := newCluster(t)
	c.nodes(1)
	c.register(job(1))
	first := c.alive()[0]
	c.report(first, fleet.ClientFailed)
	c.settle()
	second := c.alive()[0]
	c.eligibility(second.NodeID, fleet.NodeIneligible)
	c.report(second, fleet.ClientFailed)
	c.settle()
	failed, _ := c.store.View().Alloc(second.ID)
	if !failed.AwaitsPlacement() || len(failed.RescheduleTracker.Events) != 1 || len(c.alive()) != 0 {
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
	c.unblock(waits.ID)
	c.schedule(waits.ID)
	if again, _ := c.store.View().Alloc(second.ID); again.ModifyIndex != failed.ModifyIndex || len(c.plans) != 0 {
		t.Errorf("changed at %d, by %d plans", again.ModifyIndex, len(c.plans))
	}
	c.eligibility(second.NodeID, fleet.NodeEligible)
	c.unblock(waits.ID)
	c.settle()
	if len(c.alive()) != 1 {
		t.Fatalf("%d placed when there is room", len(c.alive()))
	}
	third := c.alive()[0]
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
	c.nodes(2)
	spec := func(count int) *fleet.Job {
		return job(count, func(j *fleet.Job) { j.TaskGroups[0].ReschedulePolicy = &fleet.ReschedulePolicy{Unlimited: true} })
	}
	c.register(spec(2))
	completed, failed := c.alive()[0], c.alive()[1]
	c.report(completed, fleet.ClientComplete)
	c.report(failed, fleet.ClientFailed)
	c.settle()
	for range 2 {
		if got := names(c.alive()); got != "web.web[0] web.web[1]" {
			t.Fatalf("alive: %s", got)
		}
		c.register(spec(2))
	}
	v := c.store.View()
	if a, _ := v.Alloc(completed.ID); a.DesiredStatus != fleet.DesiredRun || !a.Retired || a.NextAllocation == "" {
		t.Errorf("what completed is to %s, retired %v, replaced by %q", a.DesiredStatus, a.Retired, a.NextAllocation)
	}
	if a, _ := v.Alloc(failed.ID); a.DesiredStatus != fleet.DesiredStop || a.Retired {
		t.Errorf("what failed is to %s, retired %v", a.DesiredStatus, a.Retired)
	}
	surplus := c.alive()[1]
	c.report(surplus, fleet.ClientComplete)
	c.register(spec(1))
	if a, _ := c.store.View().Alloc(surplus.ID); a.DesiredStatus != fleet.DesiredRun || !a.Retired {
		t.Errorf("what is not needed and completed is to %s, retired %v", a.DesiredStatus, a.Retired)
	}
	c.register(spec(2))
	if got := names(c.alive()); got != "web.web[0] web.web[1]" {
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
				c.nodes(1)
				spec := func() *fleet.Job {
					return job(2, func(j *fleet.Job) { j.Type, j.TaskGroups[0].ReschedulePolicy = tc.jobType, &fleet.ReschedulePolicy{} })
				}
				c.register(spec())
				ended, running := c.alive()[0], c.alive()[1]
				c.report(ended, tc.status)
				c.report(running, fleet.ClientRunning)
				c.settle()
				stop := &fleet.Evaluation{ID: fleet.EvalID(c.newID()), Status: fleet.EvalPending, TriggeredBy: fleet.TriggerJobDeregister}
				c.apply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: "web", Purge: purge, Eval: stop, Now: c.now.UnixNano()})
				c.settle()
				ended, _ = c.store.View().Alloc(ended.ID)
				running, _ = c.store.View().Alloc(running.ID)
				if ended.DesiredStatus != fleet.DesiredRun || running.DesiredStatus != fleet.DesiredStop {
					t.Errorf("what had ended is to %s, what runs is to %s", ended.DesiredStatus, running.DesiredStatus)
				}
				c.report(running, fleet.ClientComplete)
				if e := c.pending(); e != nil {
					t.Errorf("an evaluation is left: %+v", e)
				}
				c.register(spec())
				if got := names(c.alive()); got != "web.web[0] web.web[1]" {
					t.Errorf("registered again: %s", got)
				}
			})
		}
	}
}
