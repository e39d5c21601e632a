package state_test

import (
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// TestSites has nodes of two sites, which constraints tell apart, and one that names none.
func TestSites(t *testing.T) {
	w := newTestHarness(t)
	classes := map[string]string{}
	for name, site := range map[string]string{"till": "shop-17", "scale": "shop-17", "crane": "harbour", "hall": ""} {
		n := description(fleet.NodeID(fleet.DeriveUUID("node", name)), name)
		n.Site = site
		w.mustApply(state.NodeRegister{Node: n, Now: w.nowNanos()})
		have := w.getNode(n.ID)
		classes[name] = have.ComputedClass
		want := site
		if want == "" {
			want = n.Datacenter
		}
		if have.Site != want {
			t.Errorf("%s stands in %q, want %q", name, have.Site, want)
		}
	}
	if classes["till"] != classes["scale"] || classes["till"] == classes["crane"] || classes["hall"] == classes["crane"] {
		t.Errorf("classes: %v", classes)
	}
}
