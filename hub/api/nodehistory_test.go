package api_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/api"
	"skerry/fleet"

	"skerry/hub/state"
)

// TestNodeHistoryJoinsAllocations asks what happened on a node: its own record and those of its
// allocations are one timeline, the loss of the link is in it once, and a window bounds it.
func TestNodeHistoryJoinsAllocations(t *testing.T) {
	h, srv, c := mustServe(t)
	mustJobs(t, c, 2)
	first, second := mustPlace(t, h, "j00"), mustPlace(t, h, "j01")
	second10 := 10 * time.Second
	mustReport(t, h, 1, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: first, ClientStatus: fleet.ClientRunning, Wall: int64(second10)})
	mustReport(t, h, 2, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: second, ClientStatus: fleet.ClientRunning, Wall: int64(second10)})
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: 1, Reason: "no beat"}}, EvalSeed: "s", Now: int64(2 * second10)})
	mustApply(t, h, state.SessionOpen{NodeID: nodeID, Session: 2, Instance: "i", BootID: "b", Hub: "hub1", EvalSeed: "t", Now: int64(4 * second10)})

	path := srv.URL + "/v1/node/" + string(nodeID) + "/history?stale"
	read := func(query string) []fleet.HistoryEntry {
		status, said := mustGet(t, path+"&allocations=true"+query)
		if status != 200 {
			t.Fatalf("%s: %d %s", query, status, said)
		}
		var entries []fleet.HistoryEntry
		if err := json.Unmarshal([]byte(said), &entries); err != nil {
			t.Fatal(err)
		}
		return entries
	}
	var words []string
	for _, e := range read("") {
		switch {
		case e.Transition != nil:
			words = append(words, "row of "+fleet.Short(e.AllocID))
		case strings.HasPrefix(e.Event, "node "):
			words = append(words, e.Event)
		}
	}
	want := []string{"row of " + fleet.Short(first), "row of " + fleet.Short(second), "node disconnected", "node reconnected", "node ready"}
	if !slices.Equal(words[len(words)-len(want):], want) {
		t.Errorf("the timeline ends with %q, want %q", words, want)
	}
	at := func(d time.Duration) string {
		return url.QueryEscape(time.Unix(0, int64(d)).UTC().Format(time.RFC3339))
	}
	for _, e := range read("&since=" + at(15*time.Second) + "&until=" + at(25*time.Second)) {
		if e.Event != "node disconnected" && e.Event != "unknown" && e.Event != "lost" {
			t.Errorf("outside of the window: %+v", e)
		}
	}
	for query, says := range map[string]string{
		"&since=yesterday": `the parameter since: "yesterday" is not a time`,
		"&since=" + at(90*time.Second) + "&until=" + at(time.Second): "ends before it begins",
	} {
		if status, said := mustGet(t, path+"&allocations=true"+query); status != 400 || !strings.Contains(said, says) {
			t.Errorf("%s: %d %s", query, status, said)
		}
	}
}

// TestFleetStatusOfSomeNodes asks for the nodes of some sites: sites, nodes and what waits are
// of those alone.
func TestFleetStatusOfSomeNodes(t *testing.T) {
	h, srv, _ := mustServe(t)
	for i, site := range []string{"shop-1", "shop-2", "ship"} {
		mustApply(t, h, state.NodeRegister{Node: fleet.Node{ID: fleet.NodeID(site), Name: site, Site: site, Datacenter: "dc1", NodePool: "default"}, Now: int64(i + 2)})
	}
	for filter, want := range map[string]string{
		"":                         "edge1 ship shop-1 shop-2",
		`Site matches "^shop-.*$"`: "shop-1 shop-2",
		`Site == "ship"`:           "ship",
		`Status == "down"`:         "",
	} {
		status, said := mustGet(t, srv.URL+"/v1/fleet/status?stale&filter="+url.QueryEscape(filter))
		var s api.FleetStatus
		if err := json.Unmarshal([]byte(said), &s); err != nil || status != 200 {
			t.Fatal(status, said, err)
		}
		var names []string
		for _, n := range s.Nodes {
			names = append(names, n.Name)
		}
		if got := strings.Join(names, " "); got != want || len(s.Sites) != len(names) || len(s.Waiting) != len(names) {
			t.Errorf("%s: nodes %s, %d sites, %d wait; want %s", filter, got, len(s.Sites), len(s.Waiting), want)
		}
	}
	if status, said := mustGet(t, srv.URL+"/v1/fleet/status?filter=Site+is"); status != 400 || !strings.Contains(said, "read the parameter filter") {
		t.Errorf("%d %s", status, said)
	}
}

// TestFleetStatusCountsWhatMayStillRun has an edge go away with an allocation that was told
// to stop before: nobody knows whether it has.
func TestFleetStatusCountsWhatMayStillRun(t *testing.T) {
	h, srv, c := mustServe(t)
	mustJobs(t, c, 2)
	stays, stops := mustPlace(t, h, "j00"), mustPlace(t, h, "j01")
	for i, id := range []fleet.AllocID{stays, stops} {
		mustReport(t, h, fleet.Seq(i+1), fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning})
	}
	al, _ := h.store.View().Alloc(stops)
	stopped := *al
	stopped.DesiredStatus = fleet.DesiredStop
	mustApply(t, h, state.Plan{Result: fleet.PlanResult{NodeUpdate: map[fleet.NodeID][]fleet.Alloc{nodeID: {stopped}}}})
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: 1, Reason: "no beat"}}, EvalSeed: "s", Now: 9})
	status, said := mustGet(t, srv.URL+"/v1/fleet/status?stale")
	var s api.FleetStatus
	if err := json.Unmarshal([]byte(said), &s); err != nil || status != 200 {
		t.Fatal(status, said, err)
	}
	if got := s.Nodes[0].Allocs; got[fleet.ClientUnknown] != 1 || got[fleet.ClientRunning] != 1 {
		t.Errorf("allocations %v, want the stopping one to be unknown, and the other as its evaluation leaves it", got)
	}
}
