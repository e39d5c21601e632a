package scheduler_test

import (
	"fmt"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// stopJobAndSchedule deregisters the job and has that decided.
func (c *cluster) stopJobAndSchedule(id fleet.JobID) {
	c.tb.Helper()
	e := &fleet.Evaluation{ID: fleet.EvalID(c.newID()), Status: fleet.EvalPending}
	c.mustApplyCommand(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: id, Eval: e, Now: c.now.UnixNano()})
	c.schedulePendingEvals()
}

func (c *cluster) mustEval(id fleet.EvalID) *fleet.Evaluation {
	c.tb.Helper()
	e, ok := c.store.View().Eval(id)
	if !ok {
		c.tb.Fatalf("there is no evaluation %q", id)
	}
	return e
}

// countByVersion counts what is alive by version and datacenter.
func (c *cluster) countByVersion(by func(*fleet.Node) string) map[string]int {
	count := map[string]int{}
	for _, a := range c.nonTerminalAllocs() {
		n, _ := c.store.View().Node(a.NodeID)
		count[fmt.Sprint("v", a.JobVersion, " ", by(n))]++
	}
	return count
}

// What has no room waits in an evaluation of its own.
func TestWaiting(t *testing.T) {
	t.Run("B7 disk", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1, func(n *fleet.Node) { n.Reserved.DiskMB = 4 << 10 }) // 96 GiB are left
		e := c.registerAndSchedule(job(2, func(j *fleet.Job) { j.TaskGroups[0].EphemeralDisk.SizeMB = 88 << 10 }))
		if len(c.nonTerminalAllocs()) != 1 || e.Status != fleet.EvalComplete || e.FailedTGAllocs["web"].DimensionExhausted["disk"] != 1 {
			t.Fatalf("%d placed, %+v", len(c.nonTerminalAllocs()), e)
		}
		if b := c.mustEval(e.BlockedEval); b.Status != fleet.EvalBlocked || b.TriggeredBy != fleet.TriggerQueuedAllocs {
			t.Errorf("waits: %+v", b)
		}
	})
	t.Run("B10 nothing is wanted any more", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1)
		c.sub = func(p fleet.Plan) (fleet.PlanResult, bool) {
			return fleet.PlanResult{Rejected: map[fleet.NodeID]string{node(0).ID: "no"}, RefreshIndex: c.store.View().Index()}, true
		}
		e := c.registerAndSchedule(job(3))
		blocked := c.mustEval(e.BlockedEval)
		if e.Status != fleet.EvalFailed || blocked.TriggeredBy != fleet.TriggerMaxPlanAttempts {
			t.Fatalf("%+v, waits: %+v", e, blocked)
		}
		c.sub = nil
		c.mustApplyCommand(state.JobRegister{Job: job(0), Now: c.now.UnixNano()}) // its own evaluation comes later
		c.unblockEval(blocked.ID)
		if done := c.scheduleEval(blocked.ID); done.Status != fleet.EvalComplete || len(c.plans) != 0 || len(c.nonTerminalAllocs()) != 0 {
			t.Errorf("%+v, %d plans, %d placed", done, len(c.plans), len(c.nonTerminalAllocs()))
		}
	})
	t.Run("B3, I14: no node at all", func(t *testing.T) {
		c := newCluster(t)
		e := c.registerAndSchedule(job(10))
		b := c.mustEval(e.BlockedEval)
		if e.Status != fleet.EvalComplete || e.QueuedAllocations["web"] != 10 || b.Status != fleet.EvalBlocked || len(c.webJobAllocs()) != 0 {
			t.Errorf("%+v, waits: %+v", e, b)
		}
	})
	t.Run("B75, I21: a static port that is taken", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1)
		static := func(j *fleet.Job) {
			j.TaskGroups[0].Networks = []fleet.NetworkResource{{ReservedPorts: []fleet.Port{{Label: "web", Value: 5000}}}}
		}
		c.registerAndSchedule(job(1, static))
		e := c.registerAndSchedule(job(1, static, func(j *fleet.Job) { j.ID = "second" })) // it is registered
		if b := c.mustEval(e.BlockedEval); e.Status != fleet.EvalComplete || b.Status != fleet.EvalBlocked || e.QueuedAllocations["web"] != 1 {
			t.Fatalf("%+v, waits: %+v", e, b)
		}
		first := c.nonTerminalAllocs()[0]
		c.reportAllocStatus(first, fleet.ClientRunning)
		c.stopJobAndSchedule("web")
		c.reportAllocStatus(first, fleet.ClientComplete)
		c.unblockEval(e.BlockedEval)
		if done := c.scheduleEval(e.BlockedEval); done.Status != fleet.EvalComplete || done.QueuedAllocations["web"] != 0 {
			t.Errorf("when it is free: %+v", done)
		}
	})
	t.Run("B70 what an allocation that ends gives back, and when", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1)
		half := func(j *fleet.Job) { task(j).Resources.CPU = 7000 }
		c.registerAndSchedule(job(2, half))
		e := c.registerAndSchedule(job(2, half, func(j *fleet.Job) { j.ID = "second" }))
		all := c.nonTerminalAllocs()
		for _, a := range all {
			c.reportAllocStatus(a, fleet.ClientRunning)
		}
		placed := func(want int) {
			t.Helper()
			c.unblockEval(e.BlockedEval)
			c.scheduleEval(e.BlockedEval)
			n := 0
			for range c.store.View().AllocsByJob(fleet.DefaultNamespace, "second") {
				n++
			}
			if n != want {
				t.Errorf("%d of the second job are placed, want %d", n, want)
			}
		}
		c.reportAllocStatus(all[0], fleet.ClientFailed) // ended on the edge, and the hub wants it still
		c.stopJobAndSchedule("web")
		placed(1)
		if a, _ := c.store.View().Alloc(all[1].ID); a.DesiredStatus != fleet.DesiredStop || a.ClientStatus != fleet.ClientRunning {
			t.Fatalf("the other one: %+v", a)
		}
		placed(1) // the hub has stopped the other one, and it runs on its edge
		c.reportAllocStatus(all[1], fleet.ClientComplete)
		placed(2)
	})
}

// Two groups are placed each for itself, and what is said of one is not said of the
// other.
func TestTwoGroupsFit(t *testing.T) {
	t.Run("B23", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(2)
		e := c.registerAndSchedule(job(2, func(j *fleet.Job) {
			big := j.TaskGroups[0]
			big.Name, big.Count, big.Tasks = "big", 3, append([]fleet.Task{}, big.Tasks...)
			big.Tasks[0].Resources.CPU = 9000
			j.TaskGroups = append(j.TaskGroups, big)
		}))
		if got := names(c.nonTerminalAllocs()); got != "web.big[0] web.big[1] web.web[0] web.web[1]" {
			t.Errorf("placed %s", got)
		}
		if len(e.FailedTGAllocs) != 1 || e.FailedTGAllocs["big"].NodesExhausted != 2 || e.FailedTGAllocs["big"].CoalescedFailures != 0 ||
			e.QueuedAllocations["big"] != 1 || e.QueuedAllocations["web"] != 0 {
			t.Errorf("failed %+v, queued %v", e.FailedTGAllocs, e.QueuedAllocations)
		}
	})
}

// B32: a version that failed is replaced where it belongs, though the job has moved
// on; the canary goes where the new one belongs.
func TestReplacementOfAnOlderVersion(t *testing.T) {
	pool := func(n *fleet.Node) string { return n.NodePool }
	for _, tc := range []struct {
		row      string
		node     func(to string) func(*fleet.Node)
		job      func(to string) func(*fleet.Job)
		by       func(*fleet.Node) string
		from, to string
	}{
		{"B32 datacenter", inDC, func(to string) func(*fleet.Job) { return func(j *fleet.Job) { j.Datacenters = []string{to} } }, dcOf, "dc1", "dc2"},
		{"B32 node pool", func(to string) func(*fleet.Node) { return func(n *fleet.Node) { n.NodePool = to } },
			func(to string) func(*fleet.Job) { return func(j *fleet.Job) { j.NodePool = to } }, pool, "default", "sea"},
	} {
		t.Run(tc.row, func(t *testing.T) {
			c := newCluster(t)
			for i := range 4 {
				c.openNodeSession(node(i, tc.node([]string{tc.from, tc.to}[i%2])))
			}
			canary := func(j *fleet.Job) { j.TaskGroups[0].Update = &fleet.Update{MaxParallel: 1, Canary: 1} }
			c.registerAndSchedule(job(2, canary, tc.job(tc.from)))
			for _, a := range c.nonTerminalAllocs() {
				c.reportAllocStatus(a, fleet.ClientRunning)
				c.markAllocHealthy(a)
			}
			c.schedulePendingEvals()
			c.registerAndSchedule(job(2, canary, tc.job(tc.to), func(j *fleet.Job) { task(j).Env = map[string]string{"v": "2"} }))
			failed := c.nonTerminalAllocs()[0]
			if failed.JobVersion != 0 {
				failed = c.nonTerminalAllocs()[1]
			}
			c.reportAllocStatus(failed, fleet.ClientFailed)
			c.schedulePendingEvals()
			got := c.countByVersion(tc.by)
			if len(got) != 2 || got["v0 "+tc.from] != 2 || got["v1 "+tc.to] != 1 {
				t.Errorf("alive: %v, want two of version 0 in %s and the canary in %s", got, tc.from, tc.to)
			}
		})
	}
}

// B34: what leaves the allocation where it may be is taken in place.
func TestInPlaceWhereItMayBe(t *testing.T) {
	for name, change := range map[string]func(*fleet.Job){
		"B34 a stop's signal": func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].KillSignal = "SIGINT" },
		"B34 a constraint that holds": func(j *fleet.Job) {
			j.Constraints = []fleet.Constraint{{LTarget: "${attr.kernel.name}", Operand: "=", RTarget: "linux"}}
		},
		"B34 a datacenter by wildcard": func(j *fleet.Job) { j.Datacenters = []string{"elsewhere", "d*1"} },
		"B34 all node pools":           func(j *fleet.Job) { j.NodePool = fleet.AllPools },
		"B34 the group's restart rules": func(j *fleet.Job) {
			j.TaskGroups[0].RestartPolicy = &fleet.RestartPolicy{Attempts: 7, Mode: fleet.RestartModeFail}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.addReadyNodes(3)
			c.registerAndSchedule(job(1))
			before := c.nonTerminalAllocs()[0]
			c.reportAllocStatus(before, fleet.ClientRunning)
			e := c.registerAndSchedule(job(1, change))
			after := c.nonTerminalAllocs()
			if len(after) != 1 || len(c.webJobAllocs()) != 1 || after[0].ID != before.ID || after[0].NodeID != before.NodeID || after[0].JobVersion != 1 ||
				e.Status != fleet.EvalComplete {
				t.Errorf("%d allocations, alive %+v", len(c.webJobAllocs()), after)
			}
		})
	}
}

// Hosts and properties that allocations may not share.
func TestDistinctRows(t *testing.T) {
	t.Run("B50 two namespaces", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1)
		hosts := func(j *fleet.Job) { j.Constraints = []fleet.Constraint{{Operand: fleet.OpDistinctHosts}} }
		first := c.registerAndSchedule(job(1, hosts))
		c.mustApplyCommand(state.NamespaceStore{Namespace: fleet.Namespace{Name: "other"}})
		second := c.registerAndSchedule(job(1, hosts, func(j *fleet.Job) { j.Namespace = "other" }))
		if first.QueuedAllocations["web"]+second.QueuedAllocations["web"] != 0 || c.countByNodeValue(dcOf)["dc1"] != 2 {
			t.Errorf("%+v, %+v", first, second)
		}
		// In its own namespace another one finds no host.
		if third := c.registerAndSchedule(job(2, hosts, func(j *fleet.Job) { j.Namespace = "other" })); third.QueuedAllocations["web"] != 1 {
			t.Errorf("%+v", third)
		}
	})
	t.Run("B52 a property of one group", func(t *testing.T) {
		c := newCluster(t)
		for i := range 2 {
			c.openNodeSession(node(i, func(n *fleet.Node) { n.Meta["ssd"] = fmt.Sprint(i) }))
		}
		e := c.registerAndSchedule(job(1, func(j *fleet.Job) {
			other := j.TaskGroups[0]
			other.Name, other.Count = "other", 2
			j.TaskGroups[0].Constraints = []fleet.Constraint{{LTarget: "${meta.ssd}", Operand: fleet.OpDistinctProp}}
			j.TaskGroups = append(j.TaskGroups, other)
		}))
		if got := names(c.nonTerminalAllocs()); got != "web.other[0] web.other[1] web.web[0]" || e.BlockedEval != "" || len(e.FailedTGAllocs) != 0 {
			t.Errorf("placed %s, %+v", got, e)
		}
	})
	t.Run("B52 from three to six on six nodes", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(6)
		unique := func(j *fleet.Job) {
			j.TaskGroups[0].Constraints = []fleet.Constraint{{LTarget: "${node.unique.id}", Operand: fleet.OpDistinctProp}}
		}
		c.registerAndSchedule(job(3, unique))
		for _, a := range c.nonTerminalAllocs() {
			c.reportAllocStatus(a, fleet.ClientRunning)
		}
		e := c.registerAndSchedule(job(6, unique))
		if on := c.countByNodeValue(func(n *fleet.Node) string { return n.Name }); len(on) != 6 || len(c.nonTerminalAllocs()) != 6 || e.BlockedEval != "" {
			t.Errorf("on %v, %+v", on, e)
		}
	})
}

// B92: devices are taken from the least important, and only where that is enough.
func TestDevicesArePreempted(t *testing.T) {
	const gpu = "nvidia/gpu/1080ti"
	for _, tc := range []struct {
		row   string
		there []existingJob
		ask   int
		want  map[fleet.JobID]bool
	}{
		{"B92 both that hold them", []existingJob{{id: "l1", priority: 30, gpu: gpu, gpus: 2}, {id: "l2", priority: 30, gpu: gpu, gpus: 2}}, 4,
			map[fleet.JobID]bool{"l1": true, "l2": true}},
		{"B92 more than there are", []existingJob{{id: "l1", priority: 30, gpu: gpu, gpus: 2}, {id: "l2", priority: 30, gpu: gpu, gpus: 2}}, 5, map[fleet.JobID]bool{}},
		{"B92 the lowest priority first", []existingJob{{id: "l1", priority: 40, gpu: gpu, gpus: 2}, {id: "l2", priority: 30, gpu: gpu, gpus: 2}}, 2,
			map[fleet.JobID]bool{"l2": true}},
	} {
		t.Run(tc.row, func(t *testing.T) {
			c := newCluster(t)
			c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) { conf.PreemptionConfig.ServiceSchedulerEnabled = true })
			c.addReadyNodes(1, func(n *fleet.Node) {
				for i := range 4 {
					n.Devices = append(n.Devices, fleet.Device{Vendor: "nvidia", Type: "gpu", Name: "1080ti", ID: fmt.Sprint("gpu", i)})
				}
			})
			for _, l := range tc.there {
				c.registerAndSchedule(job(1, l.applyToJob))
			}
			c.registerAndSchedule(job(1, existingJob{id: "ask", priority: 100, gpu: gpu, gpus: tc.ask}.applyToJob))
			for a := range c.store.View().Allocs("*", "") {
				if evicted := a.DesiredStatus == fleet.DesiredEvict; evicted != tc.want[a.JobID] {
					t.Errorf("%s: evicted %v", a.JobID, evicted)
				}
			}
		})
	}
}

// A31: the only node is drained and falls silent, in a pool with Nomad's default: what
// the service had is lost and waits for a place, what the system job had is lost.
func TestDrainedNodeGoesDown(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	c.mustApplyCommand(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: fleet.DisconnectNomad}})
	c.registerAndSchedule(job(1))
	c.registerAndSchedule(job(1, asSystemJob, func(j *fleet.Job) { j.ID = "everywhere" }))
	var service fleet.AllocID
	for a := range c.store.View().Allocs("*", "") {
		c.reportAllocStatus(a, fleet.ClientRunning)
		if a.JobID == "web" {
			service = a.ID
		}
	}
	c.schedulePendingEvals()
	id := node(0).ID
	c.mustApplyCommand(state.NodeDrain{NodeID: id, Drain: &fleet.DrainStrategy{StartedAt: c.now}, EvalSeed: c.newID(), Now: c.now.UnixNano()})
	c.mustApplyCommand(state.DrainStep{Migrate: []fleet.AllocID{service}, EvalSeed: c.newID(), Now: c.now.UnixNano()})
	c.schedulePendingEvals()
	c.missNodeHeartbeat(id)
	c.schedulePendingEvals()
	if n, _ := c.store.View().Node(id); n.Status != fleet.NodeDown {
		t.Fatalf("A31: the node is %s", n.Status)
	}
	for job, want := range map[fleet.JobID]fleet.TaskGroupSummary{"web": {Queued: 1, Lost: 1}, "everywhere": {Lost: 1}} {
		if got, _ := c.store.View().JobSummary(fleet.DefaultNamespace, job); got.Summary["web"] != want {
			t.Errorf("A31: summary of %s: %+v, want %+v", job, got.Summary["web"], want)
		}
	}
}
