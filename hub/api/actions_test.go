package api_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// jobWithActions is a job whose task has actions.
func jobWithActions(id string, actions ...string) *nomad.Job {
	job := exampleJob(id)
	for _, a := range actions {
		job.TaskGroups[0].Tasks[0].Actions = append(job.TaskGroups[0].Tasks[0].Actions, &nomad.Action{Name: a, Command: "/bin/" + a, Args: []string{"-x"}})
	}
	return job
}

// TestNamesOfActions registers, lists and runs actions by the names that Nomad takes.
func TestNamesOfActions(t *testing.T) {
	h, srv, c := mustServe(t)
	names := []string{"flush_cache", "_", "a.b:c/d", "größe", strings.Repeat("n", 128)}
	if _, _, err := c.Jobs().Register(jobWithActions("web", names...), nil); err != nil {
		t.Fatal(err)
	}
	alloc := mustPlace(t, h, "web")
	mustRun(t, h, 1, alloc)
	var asked []syncproto.Request
	actionEdge(h, &asked)
	for i, name := range names {
		var out strings.Builder
		_, err := c.Jobs().ActionExec(t.Context(), &nomad.Allocation{ID: string(alloc), NodeID: string(nodeID), TaskGroup: "site"}, "web", "main", false, nil, name,
			strings.NewReader("x"), &out, io.Discard, nil, nil)
		if err != nil || len(asked) != i+1 || asked[i].Action != name {
			t.Errorf("%q: asked %+v, %v", name, asked, err)
		}
	}
	if _, text := mustGet(t, srv.URL+"/v1/job/web/actions"); strings.Count(text, `"TaskName"`) != len(names) {
		t.Error(text)
	}
	for _, name := range []string{"", "two words", "tab\t", "\x1b[31m", strings.Repeat("n", 129)} {
		if _, _, err := c.Jobs().Register(jobWithActions("web", name), nil); err == nil || !strings.Contains(err.Error(), "cannot name an action") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// actionEdge has the edge record each request, and answer with its input in capitals.
func actionEdge(h *fakeHub, asked *[]syncproto.Request) {
	serveExecWith(h, func(req syncproto.Request, in *syncproto.Reader, out *syncproto.Writer) {
		*asked = append(*asked, req)
		req.Command = []string{"up"}
		serveInCapitals(req, in, out)
	})
}

func TestNomadClientRunsActions(t *testing.T) {
	h, srv, c := mustServe(t)
	if _, _, err := c.Jobs().Register(jobWithActions("web", "flush", "count"), nil); err != nil {
		t.Fatal(err)
	}
	if status, text := mustGet(t, srv.URL+"/v1/job/web/actions"); status != http.StatusOK ||
		text != `[{"Name":"flush","Command":"/bin/flush","Args":["-x"],"TaskName":"main","TaskGroupName":"site"},`+
			`{"Name":"count","Command":"/bin/count","Args":["-x"],"TaskName":"main","TaskGroupName":"site"}]`+"\n" {
		t.Errorf("actions: %d %s", status, text)
	}
	if status, text := mustGet(t, srv.URL+"/v1/job/nope/actions"); status != http.StatusNotFound {
		t.Errorf("actions of no job: %d %s", status, text)
	}
	read, _, err := c.Jobs().Info("web", nil)
	if as := read.TaskGroups[0].Tasks[0].Actions; err != nil || len(as) != 2 || as[1].Name != "count" || !slices.Equal(as[1].Args, []string{"-x"}) {
		t.Errorf("the job has actions %+v, %v", as, err)
	}

	var asked []syncproto.Request
	actionEdge(h, &asked)
	run := func(on *nomad.Allocation, task, action string) (string, error) {
		var out, wrong strings.Builder
		code, err := c.Jobs().ActionExec(t.Context(), on, "web", task, false, nil, action, strings.NewReader("typed"), &out, &wrong, nil, nil)
		if err == nil && (code != 3 || wrong.String() != "bye") {
			t.Errorf("%s: code %d, %q", action, code, wrong.String())
		}
		return out.String(), err
	}
	fails := func(on *nomad.Allocation, task, action, says string) {
		t.Helper()
		before := len(asked)
		if _, err := run(on, task, action); err == nil || !strings.Contains(err.Error(), says) || len(asked) != before {
			t.Errorf("%s: %v, want %q", action, err, says)
		}
	}
	anywhere := &nomad.Allocation{NodeID: string(nodeID)}
	fails(anywhere, "", "flush", "no allocation of group site is running")

	pending, first := mustPlace(t, h, "web"), mustPlace(t, h, "web")
	mustRun(t, h, 1, first)
	if _, _, err := c.Jobs().Register(jobWithActions("web", "flush"), nil); err != nil {
		t.Fatal(err)
	}
	second := mustPlace(t, h, "web")
	mustRun(t, h, 2, second)
	on := func(id fleet.AllocID) *nomad.Allocation {
		return &nomad.Allocation{ID: string(id), NodeID: string(nodeID), TaskGroup: "site"}
	}
	for _, tc := range []struct {
		on           *nomad.Allocation
		task, action string
		want         fleet.AllocID
	}{
		{on(first), "main", "flush", first},
		{on(first), "", "count", first}, // of the version that runs there
		{on(second), "", "flush", second},
		{anywhere, "", "flush", second}, // the newest version
	} {
		out, err := run(tc.on, tc.task, tc.action)
		if err != nil || out != "TYPED" {
			t.Errorf("%s: %q, %v", tc.action, out, err)
			continue
		}
		req := asked[len(asked)-1]
		if req.Kind != syncproto.RequestAction || req.Alloc != tc.want || req.Task != "main" || req.Action != tc.action || len(req.Command) != 0 {
			t.Errorf("%s: asked %+v", tc.action, req)
		}
	}
	fails(on(second), "", "count", `no action "count"`)
	fails(anywhere, "", "count", `no action "count"`)
	fails(on(second), "nobody", "flush", "in task nobody")
	fails(on("nope"), "", "flush", "not found")
	fails(&nomad.Allocation{ID: string(first), NodeID: string(nodeID), TaskGroup: "other"}, "", "flush", "not to other")
	if pending == "" {
		t.Fatal("not placed")
	}
	if _, _, err := c.Jobs().Register(exampleJob("other"), nil); err != nil {
		t.Fatal(err)
	}
	foreign := mustPlace(t, h, "other")
	fails(on(foreign), "", "flush", "belongs to job other")
	query := strings.Replace(srv.URL, "http", "ws", 1) + "/v1/job/web/action?"
	for params, says := range map[string]string{"": "names no action", "action=flush&tty=maybe": "tty"} {
		_, resp, err := websocket.DefaultDialer.Dial(query+params, nil)
		if err == nil {
			t.Fatalf("%s: taken", params)
		}
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), says) {
			t.Errorf("%s: %d %s", params, resp.StatusCode, b)
		}
	}
	if status, text := mustGet(t, srv.URL+"/v1/job/web/action?action=flush"); status != http.StatusBadRequest || !strings.Contains(text, "skerry action") {
		t.Errorf("without a websocket: %d %s", status, text)
	}

	h.talk = func(context.Context, syncproto.Request) (io.ReadWriteCloser, error) {
		return nil, fleet.Errorf(fleet.CodeUnsupported, "this edge does not serve %q requests", "action").WithHint("its release is older than the hub's")
	}
	fails(on(second), "", "flush", `node edge1: this edge does not serve "action" requests (its release is older than the hub's)`)
	n, _ := h.store.View().Node(nodeID)
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: n.Epoch}}, EvalSeed: "s", Now: 9_000_000_000})
	for _, where := range []*nomad.Allocation{on(second), anywhere} {
		fails(where, "", "flush", "its node edge1 is disconnected since 1970-01-01T00:00:09Z")
	}
}
