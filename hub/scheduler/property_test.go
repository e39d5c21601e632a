package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/fleet/placement"
	"skerry/hub/state"
)

// TestPlacementProperties lets a small cluster live: jobs of all types with all that
// they may ask of a node, nodes that go and come back, allocations that end. After
// every step no node is over-committed in any dimension, no group has more than it
// wants, and every evaluation has ended.
func TestPlacementProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := &fleetModel{t: rt, c: newCluster(t), away: map[fleet.NodeID]bool{}}
		l.setUpFleet()
		for range rapid.IntRange(4, 12).Draw(rt, "steps") {
			steps := []func(){l.registerRandomJob, l.registerRandomJob, l.registerRandomJob, l.toggleNodeConnection, l.reportRandomStatus, l.reportRandomStatus, l.reportRandomStatus, l.deregisterRandomJob, l.changeEligibility, l.advanceRandomTime}
			steps[rapid.IntRange(0, len(steps)-1).Draw(rt, "step")]()
			l.scheduleUntilIdle()
			l.checkInvariants()
		}
	})
}

// fleetModel drives a cluster by chance.
type fleetModel struct {
	t     *rapid.T
	c     *cluster
	nodes []*fleet.Node
	away  map[fleet.NodeID]bool
	jobs  map[fleet.JobID]*fleet.Job
}

func (l *fleetModel) drawBool(name string) bool { return rapid.Bool().Draw(l.t, name) }

func (l *fleetModel) setUpFleet() {
	l.jobs = map[fleet.JobID]*fleet.Job{}
	l.c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) {
		conf.SchedulerAlgorithm = rapid.SampledFrom([]string{"binpack", "spread"}).Draw(l.t, "algorithm")
		conf.MemoryOversubscriptionEnabled = l.drawBool("oversubscription")
		conf.PreemptionConfig = fleet.PreemptionConfig{
			SystemSchedulerEnabled: true, SysBatchSchedulerEnabled: l.drawBool("preempt"), BatchSchedulerEnabled: l.drawBool("preempt"), ServiceSchedulerEnabled: l.drawBool("preempt"),
		}
	})
	for i := range rapid.IntRange(1, 5).Draw(l.t, "nodes") {
		n := node(i, func(n *fleet.Node) {
			n.Resources = fleet.Resources{CPU: 4000, MemoryMB: 4000, DiskMB: 4000}
			n.Attributes["cpu.numcores"] = "4"
			n.MinDynamicPort, n.MaxDynamicPort = 20000, 20000+rapid.IntRange(0, 5).Draw(l.t, "ports")
			n.MaxAllocs = rapid.SampledFrom([]int{0, 0, 3}).Draw(l.t, "most")
			for d := range rapid.IntRange(0, 3).Draw(l.t, "devices") {
				n.Devices = append(n.Devices, fleet.Device{Vendor: "nvidia", Type: "gpu", Name: "x", ID: fmt.Sprint("gpu", d)})
			}
		})
		l.nodes = append(l.nodes, n)
		l.c.openNodeSession(n)
	}
}

// jobTypeByLetter are what jobs are, by the beginning of their ids.
var jobTypeByLetter = map[string]string{"s": fleet.JobTypeService, "b": fleet.JobTypeBatch, "y": fleet.JobTypeSystem, "z": fleet.JobTypeSysBatch}

func (l *fleetModel) registerRandomJob() {
	id := rapid.SampledFrom([]string{"s1", "s2", "b1", "y1", "z1"}).Draw(l.t, "job")
	j := job(rapid.IntRange(0, 5).Draw(l.t, "count"), func(j *fleet.Job) {
		j.ID, j.Name, j.Type = fleet.JobID(id), id, jobTypeByLetter[id[:1]]
		j.Priority = rapid.SampledFrom([]int{10, 50, 90}).Draw(l.t, "priority")
		g, t := &j.TaskGroups[0], task(j)
		if strings.ContainsAny(id, "yz") {
			g.Count, g.ReschedulePolicy = 1, nil
		}
		t.Resources.CPU = rapid.SampledFrom([]int{100, 900, 2500}).Draw(l.t, "cpu")
		t.Resources.MemoryMB = rapid.SampledFrom([]int{100, 1500}).Draw(l.t, "memory")
		t.Env = map[string]string{"v": rapid.SampledFrom([]string{"1", "2"}).Draw(l.t, "env")}
		if l.drawBool("cores") {
			t.Resources.CPU, t.Resources.Cores = 0, rapid.IntRange(1, 3).Draw(l.t, "cores")
		}
		if l.drawBool("device") {
			t.Resources.Devices = []fleet.RequestedDevice{{Name: "gpu", Count: rapid.IntRange(1, 2).Draw(l.t, "gpus")}}
		}
		var n fleet.NetworkResource
		if l.drawBool("static") {
			n.ReservedPorts = []fleet.Port{{Label: "a", Value: rapid.SampledFrom([]int{80, 20001}).Draw(l.t, "port")}}
		}
		if l.drawBool("dynamic") {
			n.DynamicPorts = []fleet.Port{{Label: "b"}, {Label: "c"}}[:rapid.IntRange(1, 2).Draw(l.t, "ports")]
		}
		if len(n.ReservedPorts)+len(n.DynamicPorts) > 0 {
			g.Networks = []fleet.NetworkResource{n}
		}
		if l.drawBool("spread") {
			g.Spreads = []fleet.Spread{{Attribute: "${meta.rack}", Weight: 50}}
		}
		if l.drawBool("affinity") {
			g.Affinities = []fleet.Affinity{{LTarget: "${meta.rack}", Operand: "=", RTarget: "1", Weight: -50}}
		}
		if l.drawBool("distinct") {
			g.Constraints = []fleet.Constraint{{LTarget: "${meta.rack}", Operand: fleet.OpDistinctProp, RTarget: "2"}}
		}
		g.EphemeralDisk.Sticky = l.drawBool("sticky")
	})
	l.jobs[j.ID] = j
	l.c.registerAndSchedule(j)
}

func (l *fleetModel) deregisterRandomJob() {
	id := fleet.JobID(rapid.SampledFrom([]string{"s1", "b1", "y1"}).Draw(l.t, "job"))
	if _, ok := l.c.store.View().Job(fleet.DefaultNamespace, id); !ok {
		return
	}
	l.c.mustApplyCommand(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: id, Purge: l.drawBool("purge"), Now: l.c.now.UnixNano(),
		Eval: &fleet.Evaluation{ID: fleet.EvalID(l.c.newID()), Status: fleet.EvalPending}})
}

func (l *fleetModel) randomNode() *fleet.Node { return rapid.SampledFrom(l.nodes).Draw(l.t, "node") }

// toggleNodeConnection takes a node away, or brings it back.
func (l *fleetModel) toggleNodeConnection() {
	n := l.randomNode()
	if l.away[n.ID] {
		l.c.openNodeSession(n)
	} else {
		l.c.missNodeHeartbeat(n.ID)
	}
	l.away[n.ID] = !l.away[n.ID]
}

func (l *fleetModel) changeEligibility() {
	l.c.setNodeEligibility(l.randomNode().ID, rapid.SampledFrom([]string{fleet.NodeEligible, fleet.NodeIneligible}).Draw(l.t, "eligibility"))
}

func (l *fleetModel) advanceRandomTime() {
	l.c.now = l.c.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(l.t, "time"))
}

// reportRandomStatus lets an edge in sight say something of one of its allocations.
func (l *fleetModel) reportRandomStatus() {
	var there []*fleet.Alloc
	for a := range l.c.store.View().Allocs("*", "") {
		if !l.away[a.NodeID] && !a.EndedOnEdge() {
			there = append(there, a)
		}
	}
	if len(there) == 0 {
		return
	}
	a := rapid.SampledFrom(there).Draw(l.t, "alloc")
	status := rapid.SampledFrom([]string{fleet.ClientRunning, fleet.ClientRunning, fleet.ClientFailed, fleet.ClientComplete}).Draw(l.t, "status")
	if a.ServerTerminal() {
		status = fleet.ClientComplete
	}
	l.c.reportAllocStatus(a, status)
}

// scheduleUntilIdle lets the scheduler work until nothing is left that is due; what waits for
// capacity is looked at again, once.
func (l *fleetModel) scheduleUntilIdle() {
	v := l.c.store.View()
	for e := range v.Evals("*", "") {
		if e.Status == fleet.EvalBlocked {
			l.c.unblockEval(e.ID)
		}
	}
	for range 200 {
		e := l.c.nextPendingEval()
		if e == nil {
			return
		}
		l.c.scheduleEval(e.ID)
	}
	l.t.Fatal("evaluations do not end")
}

func (l *fleetModel) checkInvariants() {
	v := l.c.store.View()
	for n := range v.Nodes("") {
		claims, there := placement.NewClaims(n), 0
		var used fleet.Resources
		for a := range v.AllocsByNode(n.ID) {
			if !a.OccupiesNode() {
				continue
			}
			there++
			used = used.Add(a.AllocatedResources)
			if clash := claims.Hold(a.Allotment); clash != "" {
				l.t.Fatalf("node %s: %s", n.Name, clash)
			}
		}
		if short := used.Exceeds(n.Free()); short != "" || n.MaxAllocs > 0 && there > n.MaxAllocs {
			l.t.Fatalf("node %s is over-committed: %s, %d allocations", n.Name, short, there)
		}
	}
	for id, j := range l.jobs {
		l.checkJob(v, id, j)
	}
}

func (l *fleetModel) checkJob(v *state.View, id fleet.JobID, j *fleet.Job) {
	names, perNode := map[string]int{}, map[fleet.NodeID]int{}
	for a := range v.AllocsByJob(fleet.DefaultNamespace, id) {
		if a.Terminal() || a.ClientStatus == fleet.ClientUnknown {
			continue
		}
		names[a.Name]++
		perNode[a.NodeID]++
		if g := a.Group(); len(g.Ports()) > 0 && (a.Allotment == nil || len(a.Allotment.Ports) != len(g.Ports())) {
			l.t.Fatalf("%s has not got its ports: %+v", a.Name, a.Allotment)
		}
	}
	everywhere := strings.ContainsAny(string(id), "yz")
	for name, n := range names {
		if n > 1 && !everywhere {
			l.t.Fatalf("%d of %s", n, name)
		}
	}
	if !everywhere && len(names) > j.TaskGroups[0].Count {
		l.t.Fatalf("job %s has %d, and wants %d", id, len(names), j.TaskGroups[0].Count)
	}
	counts := make([]int, 0, len(perNode))
	for _, n := range perNode {
		counts = append(counts, n)
	}
	if everywhere && len(counts) > 0 && slices.Max(counts) > 1 {
		l.t.Fatalf("job %s has several on a node", id)
	}
}
