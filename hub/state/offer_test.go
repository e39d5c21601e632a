package state_test

import (
	"fmt"
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// offers is one change of each thing that an edge may offer differently.
var offers = map[string]func(*fleet.Node){
	"meta":             func(n *fleet.Node) { n.Meta = map[string]string{"role": "till"} },
	"unique meta":      func(n *fleet.Node) { n.Meta = map[string]string{"unique.till": "7"} },
	"unique attribute": func(n *fleet.Node) { n.Attributes["unique.network.ip-address"] = "192.0.2.7" },
	"name":             func(n *fleet.Node) { n.Name = "till-7" },
	"datacenter":       func(n *fleet.Node) { n.Datacenter = "dc2" },
	"node pool":        func(n *fleet.Node) { n.NodePool = "ships" },
	"class":            func(n *fleet.Node) { n.NodeClass = "till" },
	"site":             func(n *fleet.Node) { n.Site = "shop-17" },
	"driver":           func(n *fleet.Node) { n.Drivers["raw_exec"] = fleet.DriverInfo{Detected: true, Healthy: true} },
	"driver health":    func(n *fleet.Node) { n.Drivers["sim"] = fleet.DriverInfo{Detected: true} },
	"devices":          func(n *fleet.Node) { n.Devices = []fleet.Device{{Vendor: "acme", Type: "scale", Name: "s1"}} },
	"resources":        func(n *fleet.Node) { n.Resources.CPU *= 2 },
	"reserved":         func(n *fleet.Node) { n.Reserved.MemoryMB = 256 },
	"allocations":      func(n *fleet.Node) { n.MaxAllocs = 3 },
	"host networks":    func(n *fleet.Node) { n.HostNetworks = []fleet.HostNetwork{{Name: "lan", IP: "192.0.2.1"}} },
	"host volumes":     func(n *fleet.Node) { n.HostVolumes = map[string]fleet.HostVolume{"data": {Path: "/srv"}} },
	"reserved ports":   func(n *fleet.Node) { n.ReservedPorts = "22" },
	"dynamic ports":    func(n *fleet.Node) { n.MinDynamicPort, n.MaxDynamicPort = 30000, 30100 },
	"time zone":        func(n *fleet.Node) { n.TimeZone = "Europe/Paris" },
}

// TestOfferChanged has a ready node describe itself differently, at run time and after a restart of its agent within
// the TTL: each job that the change may concern gets one evaluation.
func TestOfferChanged(t *testing.T) {
	for what, change := range offers {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", what, restart), func(t *testing.T) {
				w := newTestHarness(t)
				id := w.addReadyNode("n1")
				everywhere := job("logs", fleet.JobTypeSystem, 1)
				everywhere.NodePool = fleet.AllPools
				for _, j := range []*fleet.Job{everywhere, job("agent", fleet.JobTypeSystem, 1), job("shop", fleet.JobTypeService, 1), job("else", fleet.JobTypeService, 1)} {
					w.registerJob(j)
				}
				w.reportStatus(id, fleet.ClientRunning, slices.Concat(w.placeAllocs("agent", id, 1), w.placeAllocs("shop", id, 1))...)
				w.mustApply(state.Evals{Evals: slices.Concat(w.completedEvals("logs"), w.completedEvals("else")), Now: w.nowNanos()})
				say := func(n fleet.Node) {
					if !restart {
						w.mustApply(state.NodeRegister{Node: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
						return
					}
					e := w.edges[id]
					e.session++
					w.mustApply(state.SessionOpen{
						NodeID: id, Session: e.session, Head: fleet.Seq(len(e.rows)), Node: &n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos(),
					})
				}
				n := description(id, "n1")
				say(n)
				w.wantEvals("logs")
				change(&n)
				say(n)
				w.wantEvals("logs", fleet.TriggerNodeUpdate)
				w.wantEvals("agent", fleet.TriggerNodeUpdate)
				w.wantEvals("shop", fleet.TriggerNodeUpdate)
				w.wantEvals("else")
				freed := map[string]fleet.Index{}
				for class, index := range w.store.View().CapacitySince(w.index - 1) {
					freed[class] = index
				}
				if class := w.getNode(id).ComputedClass; freed[class] != w.index {
					t.Errorf("capacity of class %s at %d, the offer changed at %d", class, freed[class], w.index)
				}
			})
		}
	}
}

// An entry of an older release has no seed, and makes no evaluations. A node that is not ready gets its evaluations
// when it becomes ready.
func TestOfferChangedUnseen(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	w.registerJob(job("logs", fleet.JobTypeSystem, 1))
	w.mustApply(state.Evals{Evals: w.completedEvals("logs"), Now: w.nowNanos()})
	n := description(id, "n1")
	n.Meta = map[string]string{"role": "till"}
	w.mustApply(state.NodeRegister{Node: n, Now: w.nowNanos()})
	w.wantEvals("logs")
	w.missHeartbeats(id)
	w.mustApply(state.Evals{Evals: w.completedEvals("logs"), Now: w.nowNanos()})
	n.Meta = map[string]string{"role": "scale"}
	w.mustApply(state.NodeRegister{Node: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	w.wantEvals("logs")
	w.openNextSession(id)
	w.wantEvals("logs", fleet.TriggerNodeUpdate)
}

// TestDriverEvents: a node has an event when a driver's health changes, and none when only its text does.
func TestDriverEvents(t *testing.T) {
	w := newTestHarness(t)
	id := w.addReadyNode("n1")
	before := len(w.getNode(id).Events)
	n := description(id, "n1")
	for _, info := range []fleet.DriverInfo{
		{Detected: true, Healthy: true, HealthDescription: "Healthy"},
		{Detected: true, HealthDescription: "it hangs"}, {Detected: true, HealthDescription: "it is gone"},
		{Detected: true, Healthy: true, HealthDescription: "Healthy"},
	} {
		n.Drivers = map[string]fleet.DriverInfo{"sim": info, "new": {Detected: true}}
		w.mustApply(state.NodeRegister{Node: n, EvalSeed: w.nextEvalSeed(), Now: w.nowNanos()})
	}
	var got []string
	for _, e := range w.getNode(id).Events[before:] {
		got = append(got, fmt.Sprintf("%s %s: %s", e.Subsystem, e.Details["driver"], e.Message))
	}
	if want := []string{"Driver sim: Driver sim is not healthy: it hangs", "Driver sim: Driver sim is healthy"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
