package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/hub/state"
)

// TestPlacementProperties lets a small cluster live: jobs of all types with all that
// they may ask of a node, nodes that go and come back, allocations that end. After
// every step no node is over-committed in any dimension, no group has more than it
// wants, and every evaluation has ended.
func TestPlacementProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := &fleetLife{t: rt, c: newCluster(t), away: map[fleet.NodeID]bool{}}
		l.begin()
		for range rapid.IntRange(4, 12).Draw(rt, "steps") {
			steps := []func(){l.register, l.register, l.register, l.link, l.report, l.report, l.report, l.deregister, l.eligibility, l.pass}
			steps[rapid.IntRange(0, len(steps)-1).Draw(rt, "step")]()
			l.settle()
			l.check()
		}
	})
}

// fleetLife drives a cluster by chance.
type fleetLife struct {
	t     *rapid.T
	c     *cluster
	nodes []*fleet.Node
	away  map[fleet.NodeID]bool
	jobs  map[fleet.JobID]*fleet.Job
}

func (l *fleetLife) flip(name string) bool { return rapid.Bool().Draw(l.t, name) }

func (l *fleetLife) begin() {
	l.jobs = map[fleet.JobID]*fleet.Job{}
	l.c.configure(func(conf *fleet.SchedulerConfiguration) {
		conf.SchedulerAlgorithm = rapid.SampledFrom([]string{"binpack", "spread"}).Draw(l.t, "algorithm")
		conf.MemoryOversubscriptionEnabled = l.flip("oversubscription")
		conf.PreemptionConfig = fleet.PreemptionConfig{
			SystemSchedulerEnabled: true, SysBatchSchedulerEnabled: l.flip("preempt"), BatchSchedulerEnabled: l.flip("preempt"), ServiceSchedulerEnabled: l.flip("preempt"),
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
		l.c.open(n)
	}
}

// types are what jobs are, by the beginning of their ids.
var types = map[string]string{"s": fleet.JobTypeService, "b": fleet.JobTypeBatch, "y": fleet.JobTypeSystem, "z": fleet.JobTypeSysBatch}

func (l *fleetLife) register() {
	id := rapid.SampledFrom([]string{"s1", "s2", "b1", "y1", "z1"}).Draw(l.t, "job")
	j := job(rapid.IntRange(0, 5).Draw(l.t, "count"), func(j *fleet.Job) {
		j.ID, j.Name, j.Type = fleet.JobID(id), id, types[id[:1]]
		j.Priority = rapid.SampledFrom([]int{10, 50, 90}).Draw(l.t, "priority")
		g, t := &j.TaskGroups[0], task(j)
		if strings.ContainsAny(id, "yz") {
			g.Count, g.ReschedulePolicy = 1, nil
		}
		t.Resources.CPU = rapid.SampledFrom([]int{100, 900, 2500}).Draw(l.t, "cpu")
		t.Resources.MemoryMB = rapid.SampledFrom([]int{100, 1500}).Draw(l.t, "memory")
		t.Env = map[string]string{"v": rapid.SampledFrom([]string{"1", "2"}).Draw(l.t, "env")}
		if l.flip("cores") {
			t.Resources.CPU, t.Resources.Cores = 0, rapid.IntRange(1, 3).Draw(l.t, "cores")
		}
		if l.flip("device") {
			t.Resources.Devices = []fleet.RequestedDevice{{Name: "gpu", Count: rapid.IntRange(1, 2).Draw(l.t, "gpus")}}
		}
		var n fleet.NetworkResource
		if l.flip("static") {
			n.ReservedPorts = []fleet.Port{{Label: "a", Value: rapid.SampledFrom([]int{80, 20001}).Draw(l.t, "port")}}
		}
		if l.flip("dynamic") {
			n.DynamicPorts = []fleet.Port{{Label: "b"}, {Label: "c"}}[:rapid.IntRange(1, 2).Draw(l.t, "ports")]
		}
		if len(n.ReservedPorts)+len(n.DynamicPorts) > 0 {
			g.Networks = []fleet.NetworkResource{n}
		}
		if l.flip("spread") {
			g.Spreads = []fleet.Spread{{Attribute: "${meta.rack}", Weight: 50}}
		}
		if l.flip("affinity") {
			g.Affinities = []fleet.Affinity{{LTarget: "${meta.rack}", Operand: "=", RTarget: "1", Weight: -50}}
		}
		if l.flip("distinct") {
			g.Constraints = []fleet.Constraint{{LTarget: "${meta.rack}", Operand: fleet.OpDistinctProp, RTarget: "2"}}
		}
		g.EphemeralDisk.Sticky = l.flip("sticky")
	})
	l.jobs[j.ID] = j
	l.c.register(j)
}

func (l *fleetLife) deregister() {
	id := fleet.JobID(rapid.SampledFrom([]string{"s1", "b1", "y1"}).Draw(l.t, "job"))
	if _, ok := l.c.store.View().Job(fleet.DefaultNamespace, id); !ok {
		return
	}
	l.c.apply(state.JobDeregister{Namespace: fleet.DefaultNamespace, ID: id, Purge: l.flip("purge"), Now: l.c.now.UnixNano(),
		Eval: &fleet.Evaluation{ID: fleet.EvalID(l.c.newID()), Status: fleet.EvalPending}})
}

func (l *fleetLife) some() *fleet.Node { return rapid.SampledFrom(l.nodes).Draw(l.t, "node") }

// link takes a node away, or brings it back.
func (l *fleetLife) link() {
	n := l.some()
	if l.away[n.ID] {
		l.c.open(n)
	} else {
		l.c.miss(n.ID)
	}
	l.away[n.ID] = !l.away[n.ID]
}

func (l *fleetLife) eligibility() {
	l.c.eligibility(l.some().ID, rapid.SampledFrom([]string{fleet.NodeEligible, fleet.NodeIneligible}).Draw(l.t, "eligibility"))
}

func (l *fleetLife) pass() {
	l.c.now = l.c.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(l.t, "time"))
}

// report lets an edge in sight say something of one of its allocations.
func (l *fleetLife) report() {
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
	l.c.report(a, status)
}

// settle lets the scheduler work until nothing is left that is due; what waits for
// capacity is looked at again, once.
func (l *fleetLife) settle() {
	v := l.c.store.View()
	for e := range v.Evals("*", "") {
		if e.Status == fleet.EvalBlocked {
			l.c.unblock(e.ID)
		}
	}
	for range 200 {
		e := l.c.pending()
		if e == nil {
			return
		}
		l.c.schedule(e.ID)
	}
	l.t.Fatal("evaluations do not end")
}

func (l *fleetLife) check() {
	v := l.c.store.View()
	for n := range v.Nodes("") {
		claims, there := fleet.NewClaims(n), 0
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

func (l *fleetLife) checkJob(v *state.View, id fleet.JobID, j *fleet.Job) {
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
