package api_test

import (
	"fmt"
	"slices"
	"testing"

	"skerry/api"
	"skerry/client"
	"skerry/fleet"
	"skerry/hub/state"
)

// TestPrefetch requests, lists and ends prefetches on the nodes that have an allocation, on named ones and on a pool.
func TestPrefetch(t *testing.T) {
	h, srv, c := mustServe(t)
	hub, err := client.New(client.Config{Addr: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	other := fleet.NodeID(fleet.DeriveUUID("node", "2"))
	elsewhere := fleet.NodeID(fleet.DeriveUUID("node", "3"))
	mustApply(t, h, state.NodeRegister{Node: fleet.Node{ID: other, Name: "edge2", Datacenter: "dc1", NodePool: "default"}, Now: 1})
	mustApply(t, h, state.NodeRegister{Node: fleet.Node{ID: elsewhere, Name: "edge3", Datacenter: "dc9", NodePool: "default"}, Now: 1})
	refused := func(code fleet.Code, req api.PrefetchRequest) {
		t.Helper()
		if _, err := hub.PrefetchJob(t.Context(), "web", req); fleet.CodeOf(err) != code {
			t.Errorf("%+v: %v, want %s", req, err, code)
		}
	}
	refused(fleet.CodeConflict, api.PrefetchRequest{}) // no allocation
	refused(fleet.CodeNotFound, api.PrefetchRequest{NodePool: "ships"})
	refused(fleet.CodeNotFound, api.PrefetchRequest{NodeIDs: []fleet.NodeID{"nowhere"}})
	refused(fleet.CodeNotFound, api.PrefetchRequest{NodePool: "default", JobVersion: new(uint64(4))})
	refused(fleet.CodeInvalid, api.PrefetchRequest{NodePool: "default", NodeIDs: []fleet.NodeID{other}})
	if _, err := hub.PrefetchJob(t.Context(), "none", api.PrefetchRequest{}); fleet.CodeOf(err) != fleet.CodeNotFound {
		t.Errorf("a job that is not there: %v", err)
	}

	accepted := func(req api.PrefetchRequest, want ...fleet.NodeID) {
		t.Helper()
		answer, err := hub.PrefetchJob(t.Context(), "web", req)
		slices.Sort(want)
		if err != nil || !slices.Equal(answer.NodeIDs, want) || answer.Index == 0 {
			t.Errorf("%+v: %+v, %v", req, answer, err)
		}
	}
	accepted(api.PrefetchRequest{NodePool: "default", JobVersion: new(uint64(0))}, nodeID, other)
	accepted(api.PrefetchRequest{NodeIDs: []fleet.NodeID{elsewhere, elsewhere}}, elsewhere)
	mustPlace(t, h, "web")
	accepted(api.PrefetchRequest{}, nodeID)

	list, err := hub.JobPrefetches(t.Context(), "web", client.List{})
	var got []string
	for _, p := range list {
		got = append(got, fmt.Sprintf("%s %s %d %s %t", p.NodeName, p.NodeStatus, p.JobVersion, p.State, p.Ending))
	}
	slices.Sort(got)
	want := []string{"edge1 ready 0 pending false", "edge2 initializing 0 pending false", "edge3 initializing 0 pending false"}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%q, %v", got, err)
	}
	if err := hub.EndPrefetches(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if list, err := hub.JobPrefetches(t.Context(), "web", client.List{}); err != nil || len(list) != 3 || !list[0].Ending || !list[2].Ending {
		t.Errorf("after the end: %+v, %v", list, err)
	}
	if err := hub.EndPrefetches(t.Context(), "none"); fleet.CodeOf(err) != fleet.CodeNotFound {
		t.Errorf("the end of none: %v", err)
	}
}
