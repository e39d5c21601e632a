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

func (c *cluster) setSchedulerConfig(change func(*fleet.SchedulerConfiguration)) {
	conf := fleet.DefaultScheduling()
	change(&conf)
	c.mustApplyCommand(state.SchedulerConfig{Config: conf})
}

func task(j *fleet.Job) *fleet.Task { return &j.TaskGroups[0].Tasks[0] }

func inDC(dc string) func(*fleet.Node) { return func(n *fleet.Node) { n.Datacenter = dc } }

// countByNodeValue counts allocations that live, by what of says of their node.
func (c *cluster) countByNodeValue(of func(*fleet.Node) string) map[string]int {
	count := map[string]int{}
	for a := range c.store.View().Allocs("*", "") {
		if n, ok := c.store.View().Node(a.NodeID); ok && !a.Terminal() {
			count[of(n)]++
		}
	}
	return count
}

func dcOf(n *fleet.Node) string { return n.Datacenter }

func TestSpread(t *testing.T) {
	spread := func(targets map[string]int) func(*fleet.Job) {
		return func(j *fleet.Job) {
			s := fleet.Spread{Attribute: "${node.datacenter}", Weight: 100}
			for v, p := range targets {
				s.SpreadTarget = append(s.SpreadTarget, fleet.SpreadTarget{Value: v, Percent: p})
			}
			j.Spreads = []fleet.Spread{s}
		}
	}
	for x := 100; x >= 10; x -= 10 {
		t.Run(fmt.Sprintf("B55 %d", x), func(t *testing.T) {
			c := newCluster(t)
			for i := range 10 {
				c.openNodeSession(node(i, inDC([]string{"dc1", "dc2"}[i%2]), func(n *fleet.Node) { n.MinDynamicPort, n.MaxDynamicPort = 20000, 20005 }))
			}
			e := c.registerAndSchedule(job(10, spread(map[string]int{"dc1": x, "dc2": 100 - x}), func(j *fleet.Job) {
				j.Datacenters = []string{"dc*"}
				j.TaskGroups[0].Networks = []fleet.NetworkResource{{DynamicPorts: []fleet.Port{{Label: "http"}, {Label: "admin"}}}}
			}))
			if got := c.countByNodeValue(dcOf); got["dc1"] != x/10 || got["dc2"] != 10-x/10 || e.BlockedEval != "" {
				t.Errorf("placed %v, %+v", got, e.FailedTGAllocs["web"])
			}
		})
	}
	for name, tc := range map[string]struct {
		spreadTargets map[string]int
		dcs           int
		count         int
		want          map[string]int
	}{
		"one target":       {map[string]int{"dc1": 50}, 3, 12, map[string]int{"dc1": 6}},
		"one and a star":   {map[string]int{"dc1": 50, "*": 50}, 3, 12, map[string]int{"dc1": 6}},
		"three":            {map[string]int{"dc1": 50, "dc2": 25, "dc3": 25}, 3, 12, map[string]int{"dc1": 6, "dc2": 3, "dc3": 3}},
		"evenly, over two": {nil, 2, 10, map[string]int{"dc1": 5, "dc2": 5}},
	} {
		t.Run("B56 "+name, func(t *testing.T) {
			c := newCluster(t)
			for i := range 12 {
				c.openNodeSession(node(i, inDC(fmt.Sprintf("dc%d", i%tc.dcs+1))))
			}
			c.registerAndSchedule(job(tc.count, spread(tc.spreadTargets)))
			got := c.countByNodeValue(dcOf)
			for dc, n := range tc.want {
				if got[dc] != n {
					t.Errorf("placed %v, want %v", got, tc.want)
				}
			}
		})
	}
	t.Run("B56 racks", func(t *testing.T) {
		c := newCluster(t)
		for i := range 1000 {
			c.openNodeSession(node(i, func(n *fleet.Node) { n.Meta["rack"] = fmt.Sprint(i % 100) }))
		}
		c.registerAndSchedule(job(50, func(j *fleet.Job) { j.Spreads = []fleet.Spread{{Attribute: "${meta.rack}", Weight: 50}} }))
		got := c.countByNodeValue(func(n *fleet.Node) string { return n.Meta["rack"] })
		if len(got) != 50 {
			t.Errorf("on %d racks: %v", len(got), got)
		}
	})
}

func TestAffinityAndAlgorithm(t *testing.T) {
	t.Run("B64", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(100)
		c.registerAndSchedule(job(1, func(j *fleet.Job) {
			j.Affinities = []fleet.Affinity{{LTarget: "${attr.unique.hostname}", Operand: "=", RTarget: "edge-77", Weight: 100}}
		}))
		a := c.nonTerminalAllocs()[0]
		s := a.Metrics.ScoreMetaData[0]
		mean := (s.Scores["binpack"] + s.Scores["node-affinity"]) / 2
		if a.NodeName != "edge-77" || s.Scores["node-affinity"] != 1 || s.NormScore != mean || a.Score != mean {
			t.Errorf("on %s, %+v", a.NodeName, s)
		}
		if len(a.Metrics.ScoreMetaData) < 3 || a.Metrics.NodesEvaluated != 100 || a.Metrics.NodesAvailable["dc1"] != 100 {
			t.Errorf("metrics %+v", a.Metrics)
		}
		for _, other := range a.Metrics.ScoreMetaData[1:] {
			if other.NormScore > s.NormScore || other.NodeID == s.NodeID {
				t.Errorf("another candidate %+v", other)
			}
		}
	})
	t.Run("B61 avoided", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(6)
		c.registerAndSchedule(job(4, func(j *fleet.Job) {
			j.Affinities = []fleet.Affinity{{LTarget: "${meta.rack}", Operand: "=", RTarget: "0", Weight: -100}}
		}))
		if got := c.countByNodeValue(func(n *fleet.Node) string { return n.Meta["rack"] }); got["0"] != 0 {
			t.Errorf("placed %v", got)
		}
	})
	for _, tc := range []struct {
		global, pool string
		nodes        int
	}{{"binpack", "", 1}, {"spread", "", 2}, {"binpack", "spread", 2}, {"spread", "binpack", 1}, {"", "", 1}} {
		t.Run(fmt.Sprintf("B65 %s-%s", tc.global, tc.pool), func(t *testing.T) {
			c := newCluster(t)
			c.addReadyNodes(2)
			c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) { conf.SchedulerAlgorithm = tc.global })
			if tc.pool != "" {
				c.mustApplyCommand(state.Pool{Pool: fleet.Pool{Name: fleet.DefaultPool, SchedulerConfiguration: &fleet.PoolScheduling{SchedulerAlgorithm: tc.pool}}})
			}
			c.registerAndSchedule(job(1))
			c.registerAndSchedule(job(1, func(j *fleet.Job) { j.ID = "second" }))
			if got := c.countByNodeValue(func(n *fleet.Node) string { return n.Name }); len(got) != tc.nodes {
				t.Errorf("on %v", got)
			}
		})
	}
}

func TestAllotments(t *testing.T) {
	static := func(port int) func(*fleet.Job) {
		return func(j *fleet.Job) {
			j.TaskGroups[0].Networks = []fleet.NetworkResource{{
				ReservedPorts: []fleet.Port{{Label: "web", Value: port}}, DynamicPorts: []fleet.Port{{Label: "admin"}},
			}}
		}
	}
	t.Run("B73", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(2)
		e := c.registerAndSchedule(job(3, static(80)))
		if got := c.countByNodeValue(func(n *fleet.Node) string { return n.Name }); len(got) != 2 || len(c.nonTerminalAllocs()) != 2 || e.QueuedAllocations["web"] != 1 {
			t.Errorf("on %v", got)
		}
		if m := e.FailedTGAllocs["web"]; m.DimensionExhausted["network: reserved port collision web=80"] != 2 {
			t.Errorf("metric %+v", m)
		}
		for _, a := range c.nonTerminalAllocs() {
			if p := a.Allotment.Ports; len(p) != 2 || p[0].Value != 80 || p[1].Value < 20000 || p[1].Value > 32000 {
				t.Errorf("ports %+v", p)
			}
		}
		// Another job finds the port taken, and a place when its holder has ended.
		e = c.registerAndSchedule(job(1, static(80), func(j *fleet.Job) { j.ID = "second" }))
		if e.QueuedAllocations["web"] != 1 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("B1 no double port", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(3)
		c.registerAndSchedule(job(30, static(0), func(j *fleet.Job) { task(j).Resources.CPU = 10 }))
		seen := map[string]bool{}
		for _, a := range c.nonTerminalAllocs() {
			for _, p := range a.Allotment.Ports {
				key := fmt.Sprint(a.NodeID, p.Value)
				if seen[key] {
					t.Errorf("port %d of node %s twice", p.Value, a.NodeName)
				}
				seen[key] = true
			}
		}
		if len(c.nonTerminalAllocs()) != 30 {
			t.Errorf("%d placed", len(c.nonTerminalAllocs()))
		}
	})
	t.Run("B35", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1, func(n *fleet.Node) { n.Attributes["cpu.numcores"] = "8" })
		cores := func(j *fleet.Job) { task(j).Resources.CPU, task(j).Resources.Cores = 0, 2 }
		c.registerAndSchedule(job(2, cores))
		a := c.nonTerminalAllocs()
		if len(a) != 2 || fmt.Sprint(a[0].Allotment.CoreIDs(), a[1].Allotment.CoreIDs()) != "[0 1] [2 3]" || a[0].AllocatedResources.CPU != 2*14000/8 {
			t.Fatalf("placed %+v", a)
		}
		c.registerAndSchedule(job(2, cores, func(j *fleet.Job) { task(j).KillSignal = "SIGINT" }))
		if b := c.nonTerminalAllocs(); b[0].ID != a[0].ID || b[0].JobVersion != 1 || fmt.Sprint(b[0].Allotment.CoreIDs()) != "[0 1]" {
			t.Errorf("updated to %+v", b[0])
		}
		e := c.registerAndSchedule(job(3, cores, func(j *fleet.Job) { j.ID = "second" }))
		if m := e.FailedTGAllocs["web"]; m == nil || e.QueuedAllocations["web"] != 1 {
			t.Errorf("nine cores of eight: %+v", e)
		}
	})
	t.Run("B67", func(t *testing.T) {
		for _, allowed := range []bool{false, true} {
			c := newCluster(t)
			c.addReadyNodes(1)
			c.setSchedulerConfig(func(conf *fleet.SchedulerConfiguration) { conf.MemoryOversubscriptionEnabled = allowed })
			c.registerAndSchedule(job(1, func(j *fleet.Job) { task(j).Resources.MemoryMaxMB = 4096 }))
			if got := c.nonTerminalAllocs()[0].AllocatedResources; (got.MemoryMaxMB == 4096) != allowed || got.MemoryMB != 256 {
				t.Errorf("allowed %v: %+v", allowed, got)
			}
		}
	})
	t.Run("B71", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1, func(n *fleet.Node) {
			for i := range 4 {
				n.Devices = append(n.Devices, fleet.Device{Vendor: "nvidia", Type: "gpu", Name: "1080ti", ID: fmt.Sprint("gpu", i)})
			}
		})
		ask := func(name string, n int) func(*fleet.Job) {
			return func(j *fleet.Job) { task(j).Resources.Devices = []fleet.RequestedDevice{{Name: name, Count: n}} }
		}
		e := c.registerAndSchedule(job(2, ask("gpu", 3)))
		if len(c.nonTerminalAllocs()) != 1 || len(c.nonTerminalAllocs()[0].Allotment.DeviceIDs()) != 3 || e.FailedTGAllocs["web"].DimensionExhausted["devices: no gpu free"] != 1 {
			t.Errorf("%d placed, %+v", len(c.nonTerminalAllocs()), e.FailedTGAllocs["web"])
		}
		e = c.registerAndSchedule(job(1, ask("fpga", 1), func(j *fleet.Job) { j.ID = "second" }))
		if e.FailedTGAllocs["web"].ConstraintFiltered["missing devices"] != 1 {
			t.Errorf("%+v", e.FailedTGAllocs["web"])
		}
	})
	t.Run("B80", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(20)
		sticky := func(j *fleet.Job) { j.TaskGroups[0].EphemeralDisk.Sticky = true }
		c.registerAndSchedule(job(3, sticky))
		before := map[string]fleet.NodeID{}
		for _, a := range c.nonTerminalAllocs() {
			c.reportAllocStatus(a, fleet.ClientRunning)
			before[a.Name] = a.NodeID
		}
		c.registerAndSchedule(job(3, sticky, func(j *fleet.Job) { task(j).Env = map[string]string{"v": "2"}; j.TaskGroups[0].Update = nil }))
		c.schedulePendingEvals()
		for _, a := range c.nonTerminalAllocs() {
			if a.JobVersion == 1 && a.NodeID != before[a.Name] {
				t.Errorf("%s moved", a.Name)
			}
		}
	})
	t.Run("B82", func(t *testing.T) {
		c := newCluster(t)
		c.addReadyNodes(1, func(n *fleet.Node) { n.MaxAllocs = 1 })
		e := c.registerAndSchedule(job(2))
		if len(c.nonTerminalAllocs()) != 1 || e.FailedTGAllocs["web"].DimensionExhausted["max allocations of the node"] != 1 {
			t.Errorf("%d placed, %+v", len(c.nonTerminalAllocs()), e.FailedTGAllocs["web"])
		}
		c.registerAndSchedule(job(1, func(j *fleet.Job) { j.ID = "second" }))
		if len(c.countByNodeValue(dcOf)) != 1 || c.countByNodeValue(dcOf)["dc1"] != 1 {
			t.Errorf("%v", c.countByNodeValue(dcOf))
		}
	})
	t.Run("host network", func(t *testing.T) {
		c := newCluster(t)
		c.openNodeSession(node(0))
		c.openNodeSession(node(1, func(n *fleet.Node) { n.HostNetworks = []fleet.HostNetwork{{Name: "lan", IP: "192.0.2.7"}} }))
		c.registerAndSchedule(job(1, func(j *fleet.Job) {
			j.TaskGroups[0].Networks = []fleet.NetworkResource{{DynamicPorts: []fleet.Port{{Label: "x", HostNetwork: "lan"}}}}
		}))
		a := c.nonTerminalAllocs()[0]
		if a.NodeName != "edge-1" || a.Allotment.Ports[0].HostIP != "192.0.2.7" ||
			!strings.Contains(fmt.Sprint(a.Metrics.ConstraintFiltered, "missing host network"), "missing host network") {
			t.Errorf("on %s, %+v", a.NodeName, a.Allotment)
		}
	})
}

// TestVolumesAndNetworks: groups are placed only where their volumes (source, read_only, per_alloc, access_mode) and the
// mode of their network are.
func TestVolumesAndNetworks(t *testing.T) {
	t.Run("host volumes", func(t *testing.T) {
		c := newCluster(t)
		c.openNodeSession(node(0))
		c.openNodeSession(node(1, func(n *fleet.Node) {
			n.HostVolumes = map[string]fleet.HostVolume{"data": {Path: "/srv", ReadOnly: true}}
		}))
		c.openNodeSession(node(2, func(n *fleet.Node) { n.HostVolumes = map[string]fleet.HostVolume{"data": {Path: "/srv"}} }))
		mount := func(v fleet.VolumeRequest) func(*fleet.Job) {
			return func(j *fleet.Job) {
				v.Type = fleet.VolumeHost
				j.TaskGroups[0].Volumes = map[string]fleet.VolumeRequest{"v": v}
			}
		}
		e := c.registerAndSchedule(job(1, mount(fleet.VolumeRequest{Source: "data"})))
		if a := c.nonTerminalAllocs(); len(a) != 1 || a[0].NodeName != "edge-2" {
			t.Errorf("placed %+v, %+v", a, e.FailedTGAllocs["web"])
		}
		e = c.registerAndSchedule(job(1, mount(fleet.VolumeRequest{Source: "none", ReadOnly: true}), func(j *fleet.Job) { j.ID = "second" }))
		if m := e.FailedTGAllocs["web"]; m == nil || m.ConstraintFiltered["missing compatible host volumes"] != 3 {
			t.Errorf("%+v", m)
		}
	})
	t.Run("host volumes of each allocation", func(t *testing.T) {
		c := newCluster(t)
		for i := range 3 {
			c.openNodeSession(node(i, func(n *fleet.Node) {
				n.HostVolumes = map[string]fleet.HostVolume{fmt.Sprintf("data[%d]", 2-i): {Path: "/srv"}}
			}))
		}
		e := c.registerAndSchedule(job(4, func(j *fleet.Job) {
			j.TaskGroups[0].Volumes = map[string]fleet.VolumeRequest{"v": {Type: fleet.VolumeHost, Source: "data", PerAlloc: true}}
		}))
		var got []string
		for _, a := range c.nonTerminalAllocs() {
			got = append(got, a.Name+" "+a.NodeName)
		}
		slices.Sort(got)
		if want := []string{"web.web[0] edge-2", "web.web[1] edge-1", "web.web[2] edge-0"}; !slices.Equal(got, want) {
			t.Errorf("placed %q, want %q", got, want)
		}
		if m := e.FailedTGAllocs["web"]; m == nil || m.ConstraintFiltered["missing compatible host volumes"] != 3 {
			t.Errorf("the fourth: %+v", m)
		}
	})
	t.Run("a host volume with one writer", func(t *testing.T) {
		c := newCluster(t)
		c.openNodeSession(node(0, func(n *fleet.Node) { n.HostVolumes = map[string]fleet.HostVolume{"data": {Path: "/srv"}} }))
		one := func(j *fleet.Job) {
			j.TaskGroups[0].Volumes = map[string]fleet.VolumeRequest{"v": {Type: fleet.VolumeHost, Source: "data", AccessMode: fleet.AccessSingleWriter}}
		}
		e := c.registerAndSchedule(job(2, one))
		all := c.nonTerminalAllocs()
		if m := e.FailedTGAllocs["web"]; len(all) != 1 || m == nil || m.DimensionExhausted["host volume has a writer"] != 1 {
			t.Fatalf("placed %+v, %+v", all, m)
		}
		e = c.registerAndSchedule(job(1, one, func(j *fleet.Job) { j.ID = "second" }))
		if len(c.nonTerminalAllocs()) != 1 || e.BlockedEval == "" {
			t.Fatalf("a second job: %+v", e)
		}
		c.reportAllocStatus(all[0], fleet.ClientRunning)
		c.stopJobAndSchedule("web")
		c.reportAllocStatus(all[0], fleet.ClientComplete)
		c.unblockEval(e.BlockedEval)
		if done := c.scheduleEval(e.BlockedEval); done.QueuedAllocations["web"] != 0 {
			t.Errorf("when the writer has ended: %+v", done)
		}
	})
	t.Run("services of Consul", func(t *testing.T) {
		c := newCluster(t)
		c.openNodeSession(node(0))
		withConsul := func(j *fleet.Job) {
			j.TaskGroups[0].Services = []fleet.Service{{Name: "web", Provider: fleet.ProviderConsul}}
		}
		e := c.registerAndSchedule(job(1, withConsul))
		m := e.FailedTGAllocs["web"]
		if m == nil || m.ConstraintFiltered["missing Consul agent"] != 1 || len(m.RejectedNodes) != 1 || m.RejectedNodes[0].Why != "missing Consul agent" {
			t.Fatalf("%+v", m)
		}
		c.openNodeSession(node(1, func(n *fleet.Node) { n.Attributes[fleet.AttributeConsulVersion] = "1.21.0" }))
		c.unblockEval(e.BlockedEval)
		c.scheduleEval(e.BlockedEval)
		if a := c.nonTerminalAllocs(); len(a) != 1 || a[0].NodeName != "edge-1" {
			t.Errorf("placed %+v", a)
		}
		e = c.registerAndSchedule(job(1, func(j *fleet.Job) {
			j.ID, j.TaskGroups[0].Services = "second", []fleet.Service{{Name: "web", Provider: fleet.ProviderNomad}}
		}))
		if len(e.FailedTGAllocs) != 0 {
			t.Errorf("a service of the hubs' catalogue waits for Consul: %+v", e.FailedTGAllocs["web"])
		}
	})
	t.Run("login at Consul", func(t *testing.T) {
		c := newCluster(t)
		knows := func(n *fleet.Node) {
			n.Attributes[fleet.AttributeIdentities], n.Attributes[fleet.AttributeConsulVersion] = "1", "1.21.0"
		}
		c.openNodeSession(node(0, knows))
		e := c.registerAndSchedule(job(1, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Consul = &fleet.Consul{} }))
		if m := e.FailedTGAllocs["web"]; m == nil || m.ConstraintFiltered["missing Consul in which tasks log in"] != 1 {
			t.Fatalf("%+v", m)
		}
		c.openNodeSession(node(1, knows, func(n *fleet.Node) { n.Attributes[fleet.AttributeConsulLogin] = "1" }))
		c.unblockEval(e.BlockedEval)
		c.scheduleEval(e.BlockedEval)
		if a := c.nonTerminalAllocs(); len(a) != 1 || a[0].NodeName != "edge-1" {
			t.Errorf("placed %+v", a)
		}
	})
	t.Run("Vault", func(t *testing.T) {
		c := newCluster(t)
		knows := func(n *fleet.Node) { n.Attributes[fleet.AttributeIdentities] = "1" }
		c.openNodeSession(node(0, knows))
		e := c.registerAndSchedule(job(1, func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Vault = &fleet.Vault{} }))
		if m := e.FailedTGAllocs["web"]; m == nil || m.ConstraintFiltered["missing Vault"] != 1 || len(m.RejectedNodes) != 1 || m.RejectedNodes[0].Why != "missing Vault" {
			t.Fatalf("%+v", m)
		}
		c.openNodeSession(node(1, knows, func(n *fleet.Node) { n.Attributes[fleet.AttributeVaultVersion] = "1.18.3" }))
		c.unblockEval(e.BlockedEval)
		c.scheduleEval(e.BlockedEval)
		if a := c.nonTerminalAllocs(); len(a) != 1 || a[0].NodeName != "edge-1" {
			t.Errorf("placed %+v", a)
		}
	})
	t.Run("identities", func(t *testing.T) {
		c := newCluster(t)
		c.openNodeSession(node(0))
		e := c.registerAndSchedule(job(1, func(j *fleet.Job) {
			j.ID, j.TaskGroups[0].Tasks[0].Identity = "hidden", &fleet.WorkloadIdentity{Name: fleet.DefaultIdentity}
		}))
		if len(e.FailedTGAllocs) != 0 {
			t.Errorf("an identity that the task does not get: %+v", e.FailedTGAllocs["web"])
		}
		e = c.registerAndSchedule(job(1, func(j *fleet.Job) {
			j.TaskGroups[0].Tasks[0].Identities = []fleet.WorkloadIdentity{{Name: "aws", File: true}}
		}))
		if m := e.FailedTGAllocs["web"]; m == nil || len(m.RejectedNodes) != 1 || m.RejectedNodes[0].Why != "missing identities of tasks: the edge's release is too old" {
			t.Fatalf("%+v", m)
		}
		c.openNodeSession(node(1, func(n *fleet.Node) { n.Attributes[fleet.AttributeIdentities] = "1" }))
		c.unblockEval(e.BlockedEval)
		c.scheduleEval(e.BlockedEval)
		if a := c.nonTerminalAllocs(); len(a) != 1 || a[0].NodeName != "edge-1" {
			t.Errorf("placed %+v", a)
		}
	})
	t.Run("offline identities", func(t *testing.T) {
		c := newCluster(t)
		c.openNodeSession(node(0, func(n *fleet.Node) { n.Attributes[fleet.AttributeIdentities] = "1" }))
		e := c.registerAndSchedule(job(1, func(j *fleet.Job) {
			j.TaskGroups[0].Tasks[0].Identities = []fleet.WorkloadIdentity{{Name: "aws", File: true, TTL: time.Hour, Offline: true}}
		}))
		if m := e.FailedTGAllocs["web"]; m == nil || len(m.RejectedNodes) != 1 || m.RejectedNodes[0].Why != "missing offline identities of tasks: the edge's release is too old" {
			t.Fatalf("%+v", m)
		}
		c.openNodeSession(node(1, func(n *fleet.Node) { n.Attributes[fleet.AttributeIdentities] = fleet.OfflineIdentities }))
		c.unblockEval(e.BlockedEval)
		c.scheduleEval(e.BlockedEval)
		if a := c.nonTerminalAllocs(); len(a) != 1 || a[0].NodeName != "edge-1" {
			t.Errorf("placed %+v", a)
		}
	})
	t.Run("identities in the environment", func(t *testing.T) {
		c := newCluster(t)
		knows := func(n *fleet.Node) { n.Attributes[fleet.AttributeIdentities] = "1" }
		c.openNodeSession(node(0, knows))
		e := c.registerAndSchedule(job(1, func(j *fleet.Job) {
			j.TaskGroups[0].Tasks[0].Identities = []fleet.WorkloadIdentity{{Name: "aws", Env: true}}
		}))
		if m := e.FailedTGAllocs["web"]; m == nil || len(m.RejectedNodes) != 1 || !strings.HasPrefix(m.RejectedNodes[0].Why, "missing environments of tasks in memory") {
			t.Fatalf("%+v", m)
		}
		c.openNodeSession(node(1, knows, func(n *fleet.Node) { n.Attributes[fleet.AttributeEnvInMemory] = "1" }))
		c.unblockEval(e.BlockedEval)
		c.scheduleEval(e.BlockedEval)
		if a := c.nonTerminalAllocs(); len(a) != 1 || a[0].NodeName != "edge-1" {
			t.Errorf("placed %+v", a)
		}
	})
	t.Run("network mode", func(t *testing.T) {
		c := newCluster(t)
		c.openNodeSession(node(0))
		c.openNodeSession(node(1, func(n *fleet.Node) { n.Attributes[fleet.AttributeNetworkMode+fleet.NetworkBridge] = "1" }))
		in := func(mode string) func(*fleet.Job) {
			return func(j *fleet.Job) { j.TaskGroups[0].Networks = []fleet.NetworkResource{{Mode: mode}} }
		}
		c.registerAndSchedule(job(1, in(fleet.NetworkBridge)))
		if a := c.nonTerminalAllocs(); len(a) != 1 || a[0].NodeName != "edge-1" {
			t.Errorf("placed %+v", a)
		}
		e := c.registerAndSchedule(job(1, in("cni/lan"), func(j *fleet.Job) { j.ID = "second" }))
		if m := e.FailedTGAllocs["web"]; m == nil || m.ConstraintFiltered["missing network"] != 2 {
			t.Errorf("%+v", m)
		}
	})
}
