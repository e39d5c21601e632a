package state_test

import (
	"fmt"
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// told lists events of a topic behind an entry.
func (w *world) told(after fleet.Index, topic string) (out []string) {
	for _, happened := range w.store.View().EventsAfter(after) {
		for _, e := range happened {
			if e.Topic == topic {
				out = append(out, fmt.Sprint(e.Type, " ", e.Key, " ", e.FilterKeys))
			}
		}
	}
	return out
}

func TestEventsOfPools(t *testing.T) {
	w := newT(t)
	w.must(state.Pool{Pool: fleet.Pool{Name: "ships", Description: "at sea"}})
	w.must(state.Pool{Pool: fleet.Pool{Name: "ships", Description: "in port"}})
	n := description(fleet.NodeID(fleet.DeriveUUID("node", "farm")), "farm")
	n.NodePool = "farms"
	w.must(state.NodeRegister{Node: n, Now: w.nano()}) // makes the pool that it names
	w.must(state.PoolDelete{Name: "ships"})
	w.refused(fleet.CodeConflict, state.PoolDelete{Name: "farms"})
	w.refused(fleet.CodeInvalid, state.PoolDelete{Name: "all"})
	w.refused(fleet.CodeNotFound, state.PoolDelete{Name: "ships"})
	want := []string{"NodePoolUpserted ships []", "NodePoolUpserted ships []", "NodePoolUpserted farms []", "NodePoolDeleted ships []"}
	if got := w.told(0, state.TopicPool); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

// TestEventsOfServices has an allocation with a service start, go on, and end: it is
// told once when the service comes and once when it goes.
func TestEventsOfServices(t *testing.T) {
	w := newT(t)
	node := w.node("n1")
	j := job("shop", fleet.JobTypeService, 1)
	j.TaskGroups[0].Services = []fleet.Service{{Name: "till", Provider: fleet.ProviderNomad, AddressMode: fleet.AddressAuto}}
	w.register(j)
	id := w.place("shop", node, 1)[0]
	w.report(node, fleet.ClientPending, id)
	if got := w.told(0, state.TopicService); len(got) != 0 {
		t.Fatalf("before it runs: %q", got)
	}
	w.report(node, fleet.ClientRunning, id)
	var of []fleet.ServiceRegistration
	for r := range w.store.View().Services("default", "", "") {
		of = append(of, r)
	}
	if len(of) != 1 {
		t.Fatalf("the catalogue has %v", of)
	}
	came := fmt.Sprintf("ServiceRegistration %s [shop till]", of[0].ID)
	if got := w.told(0, state.TopicService); !slices.Equal(got, []string{came}) {
		t.Fatalf("when it runs: %q", got)
	}
	w.report(node, fleet.ClientRunning, id) // nothing new
	w.miss(node)
	w.unknown(id)
	w.session(node)
	w.report(node, fleet.ClientComplete, id)
	went := fmt.Sprintf("ServiceDeregistration %s [shop till]", of[0].ID)
	got := w.told(0, state.TopicService)
	if len(got) < 2 || got[len(got)-1] != went || slices.Contains(got[:len(got)-1], went) {
		t.Errorf("when it has ended: %q", got)
	}
}
