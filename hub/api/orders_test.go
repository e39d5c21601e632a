package api_test

import (
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// TestNomadClientRestartsAndSignals restarts and signals tasks with Nomad's client: it checks the requests that reach
// the edge, and the errors where the edge cannot be reached.
func TestNomadClientRestartsAndSignals(t *testing.T) {
	h, srv, c := mustServe(t)
	var asked []syncproto.Request
	h.files = func(req syncproto.Request) (io.ReadCloser, error) {
		asked = append(asked, req)
		if req.Signal == "SIGSOLDIER" {
			return nil, fleet.Errorf(fleet.CodeInvalid, "signal SIGSOLDIER is not known")
		}
		return io.NopCloser(strings.NewReader("")), nil
	}
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	id := mustPlace(t, h, "web")
	alloc := &nomad.Allocation{ID: string(id), NodeID: string(nodeID)}
	if err := c.Allocations().Restart(alloc, "main", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Allocations().RestartAllTasks(alloc, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Allocations().Signal(alloc, nil, "main", "SIGHUP"); err != nil {
		t.Fatal(err)
	}
	if err := c.Allocations().Signal(alloc, nil, "", ""); err != nil {
		t.Fatal(err)
	}
	if status, said := mustPut(t, srv.URL+"/v1/client/allocation/"+string(id)+"/restart", ""); status != 200 {
		t.Fatalf("restart without a body: %d %s", status, said)
	}
	want := []syncproto.Request{
		{Kind: syncproto.RequestRestart, Alloc: id, Task: "main"},
		{Kind: syncproto.RequestRestart, Alloc: id, Everything: true},
		{Kind: syncproto.RequestSignal, Alloc: id, Task: "main", Signal: "SIGHUP"},
		{Kind: syncproto.RequestSignal, Alloc: id, Signal: "SIGKILL"},
		{Kind: syncproto.RequestRestart, Alloc: id},
	}
	if len(asked) != len(want) {
		t.Fatalf("asked %+v", asked)
	}
	for i := range want {
		if !reflect.DeepEqual(asked[i], want[i]) {
			t.Errorf("asked %+v, want %+v", asked[i], want[i])
		}
	}
	fails := func(what, says string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", what, err, says)
		}
	}
	fails("a signal that there is none of", "not known", c.Allocations().Signal(alloc, nil, "main", "SIGSOLDIER"))
	fails("a task that there is none of", "main", c.Allocations().Restart(alloc, "nobody", nil))
	fails("an allocation that there is none of", "not found", c.Allocations().Restart(&nomad.Allocation{ID: "nope"}, "", nil))
	before := len(asked)
	n, _ := h.store.View().Node(nodeID)
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: n.Epoch}}, EvalSeed: "s", Now: 9})
	fails("a node that is away", "its node edge1 is down", c.Allocations().Restart(alloc, "main", nil))
	fails("a node that is away", "its node edge1 is down", c.Allocations().Signal(alloc, nil, "main", "SIGHUP"))
	if len(asked) != before {
		t.Error("a node that is away was asked")
	}
}

// TestNomadClientCollects has an edge remove the folders of ended allocations.
func TestNomadClientCollects(t *testing.T) {
	h, srv, c := mustServe(t)
	var asked []syncproto.Request
	h.files = func(req syncproto.Request) (io.ReadCloser, error) {
		asked = append(asked, req)
		return io.NopCloser(strings.NewReader("")), nil
	}
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	id := mustPlace(t, h, "web")
	refused := func(path string, status int, says string) {
		t.Helper()
		for _, method := range []string{"GET", "PUT"} {
			if got, said := mustAnswer(t, method, srv.URL+path, ""); got != status || !strings.Contains(said, says) {
				t.Errorf("%s %s: %d %s, want %d with %q", method, path, got, said, status, says)
			}
		}
	}
	refused("/v1/client/allocation/"+string(id)+"/gc", 409, "it has not ended")
	refused("/v1/client/allocation/nope/gc", 404, "not found")
	refused("/v1/client/gc", 400, "node_id is missing")
	refused("/v1/client/gc?node_id=nope", 404, "not found")
	if len(asked) > 0 {
		t.Fatalf("asked %+v", asked)
	}
	mustReport(t, h, 1, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientComplete})
	if err := c.Nodes().GcAlloc(string(id), nil); err != nil {
		t.Error(err)
	}
	if err := c.Nodes().GC(string(nodeID), nil); err != nil {
		t.Error(err)
	}
	if want := []syncproto.Request{{Kind: syncproto.RequestCollect, Alloc: id}, {Kind: syncproto.RequestCollect}}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked %+v, want %+v", asked, want)
	}
	n, _ := h.store.View().Node(nodeID)
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: n.Epoch}}, EvalSeed: "s", Now: 9})
	refused("/v1/client/allocation/"+string(id)+"/gc", 500, "it is down")
	refused("/v1/client/gc?node_id="+string(nodeID), 500, "it is down")
}

// mustPut sends a body and returns the answer's status and text.
func mustPut(tb testing.TB, url, body string) (int, string) {
	tb.Helper()
	req, err := http.NewRequest(http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestBadOrders(t *testing.T) {
	_, srv, _ := mustServe(t)
	for _, tc := range []struct{ verb, body, says string }{
		{"restart", `{"TaskName":"a","AllTasks":true}`, "both"},
		{"restart", `{`, "body"},
		{"signal", ``, "empty"},
		{"signal", `{"Signal":7}`, "body"},
	} {
		status, text := mustPut(t, srv.URL+"/v1/client/allocation/x/"+tc.verb, tc.body)
		if status != 400 || !strings.Contains(text, tc.says) {
			t.Errorf("%s %s: %d %q, want 400 with %q", tc.verb, tc.body, status, text, tc.says)
		}
	}
}

// TestNoBodyInChunks sends no body, but in chunks, to what needs none: its length is not
// known before it is read.
func TestNoBodyInChunks(t *testing.T) {
	h, srv, c := mustServe(t)
	h.files = func(syncproto.Request) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }
	mustJobs(t, c, 1)
	id := mustPlace(t, h, "j00")
	for _, path := range []string{"/v1/client/allocation/" + string(id) + "/restart", "/v1/job/j00/evaluate", "/v1/jobs/statuses"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL+path, io.MultiReader())
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || req.ContentLength > 0 {
			t.Errorf("PUT %s: %d %s, %v", path, resp.StatusCode, said, err)
		}
	}
}
