package state_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// TestSiteWatch: a view of a site wakes for changes of services there, and of its nodes, and for no other site. A node whose
// site is only its datacenter is in none.
func TestSiteWatch(t *testing.T) { synctest.Test(t, testSiteWatch) }

func testSiteWatch(t *testing.T) {
	w := newTestHarness(t)
	at := func(name, site, hash string) fleet.NodeID {
		n := description(fleet.NodeID(fleet.DeriveUUID("node", name)), name)
		n.Site, n.DescriptionHash = site, hash
		w.mustApply(state.NodeRegister{Node: n, Now: w.nowNanos()})
		return n.ID
	}
	var view *state.View
	var before fleet.Index
	want := func(when string, woken bool, nodes ...fleet.NodeID) {
		t.Helper()
		if view != nil {
			if got := w.store.View().SiteIndex("shop-17") != before; got != woken {
				t.Errorf("%s: the site has changed: %t, want %t", when, got, woken)
			}
			if got := hasChanged(t, view); got != woken {
				t.Errorf("%s: the view has woken: %t, want %t", when, got, woken)
			}
		}
		view = w.store.Watch()
		before = w.store.View().SiteIndex("shop-17")
		var found []fleet.NodeID
		for n := range view.NodesOfSite("shop-17") {
			found = append(found, n.ID)
		}
		if slices.Sort(nodes); !slices.Equal(found, nodes) {
			t.Errorf("%s: the site has %v, want %v", when, found, nodes)
		}
	}
	want("at first", false)
	a := at("a", "shop-17", "1")
	want("a node is new", true, a)
	at("x", "shop-1", "1")
	at("y", "", "1")
	at("z", "shop-170", "1")
	want("others are new", false, a)
	b := at("b", "harbour", "1")
	at("b", "shop-17", "2")
	want("a node moves in", true, a, b)
	at("b", "shop-17", "3")
	want("a node has another address", true, a, b)
	at("b", "", "4")
	want("a node moves out", true, a)

	ready := w.addReadyNode("n1")
	j := job("shop", fleet.JobTypeService, 2)
	j.TaskGroups[0].Services = []fleet.Service{{Name: "till", Provider: fleet.ProviderNomad, PortLabel: "80"}}
	w.registerJob(j)
	allocs := w.placeAllocs("shop", ready, 1)
	w.reportStatus(ready, fleet.ClientRunning, allocs...)
	want("a service runs elsewhere", false, a)
	n, _ := w.store.View().Node(ready)
	moved := *n
	moved.Site, moved.DescriptionHash = "shop-17", "5"
	w.mustApply(state.NodeRegister{Node: moved, Now: w.nowNanos()})
	want("its node moves in", true, a, ready)
	w.reportStatus(ready, fleet.ClientRunning, allocs...)
	want("nothing new is said", false, a, ready)
	w.reportStatus(ready, fleet.ClientComplete, allocs...)
	want("the service ends", true, a, ready)
	w.missHeartbeats(ready)
	want("a node is away", true, a, ready)
}

// hasChanged reports whether a view has woken.
func hasChanged(t *testing.T, v *state.View) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return v.Changed(ctx) == nil
}
