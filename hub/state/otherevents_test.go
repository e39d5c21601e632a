package state_test

import (
	"fmt"
	"slices"
	"testing"

	"skerry/fleet"
	"skerry/hub/state"
)

// eventsOfTopic lists events of a topic behind an entry.
func (w *storeHarness) eventsOfTopic(after fleet.Index, topic string) (out []string) {
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
	w := newTestHarness(t)
	w.mustApply(state.Pool{Pool: fleet.Pool{Name: "ships", Description: "at sea"}})
	w.mustApply(state.Pool{Pool: fleet.Pool{Name: "ships", Description: "in port"}})
	n := description(fleet.NodeID(fleet.DeriveUUID("node", "farm")), "farm")
	n.NodePool = "farms"
	w.mustApply(state.NodeRegister{Node: n, Now: w.nowNanos()}) // makes the pool that it names
	w.mustApply(state.PoolDelete{Name: "ships"})
	w.mustRefuse(fleet.CodeConflict, state.PoolDelete{Name: "farms"})
	w.mustRefuse(fleet.CodeInvalid, state.PoolDelete{Name: "all"})
	w.mustRefuse(fleet.CodeNotFound, state.PoolDelete{Name: "ships"})
	want := []string{"NodePoolUpserted ships []", "NodePoolUpserted ships []", "NodePoolUpserted farms []", "NodePoolDeleted ships []"}
	if got := w.eventsOfTopic(0, state.TopicPool); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

// TestEventsOfServices has an allocation with a service start, go on, and end: it is
// told once when the service comes and once when it goes.
func TestEventsOfServices(t *testing.T) {
	w := newTestHarness(t)
	node := w.addReadyNode("n1")
	j := job("shop", fleet.JobTypeService, 1)
	j.TaskGroups[0].Services = []fleet.Service{{Name: "till", Provider: fleet.ProviderNomad, AddressMode: fleet.AddressAuto}}
	w.registerJob(j)
	id := w.placeAllocs("shop", node, 1)[0]
	w.reportStatus(node, fleet.ClientPending, id)
	if got := w.eventsOfTopic(0, state.TopicService); len(got) != 0 {
		t.Fatalf("before it runs: %q", got)
	}
	w.reportStatus(node, fleet.ClientRunning, id)
	var of []fleet.ServiceRegistration
	for r := range w.store.View().Services("default", "", "") {
		of = append(of, r)
	}
	if len(of) != 1 {
		t.Fatalf("the catalogue has %v", of)
	}
	came := fmt.Sprintf("ServiceRegistration %s [shop till]", of[0].ID)
	if got := w.eventsOfTopic(0, state.TopicService); !slices.Equal(got, []string{came}) {
		t.Fatalf("when it runs: %q", got)
	}
	w.reportStatus(node, fleet.ClientRunning, id) // nothing new
	w.missHeartbeats(node)
	w.markAllocsUnknown(id)
	w.openNextSession(node)
	w.reportStatus(node, fleet.ClientComplete, id)
	went := fmt.Sprintf("ServiceDeregistration %s [shop till]", of[0].ID)
	got := w.eventsOfTopic(0, state.TopicService)
	if len(got) < 2 || got[len(got)-1] != went || slices.Contains(got[:len(got)-1], went) {
		t.Errorf("when it has ended: %q", got)
	}
}
