package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"skerry/api"
	"skerry/fleet"
)

// mustShow runs a command against a hub that has an answer for each path, and returns the output.
func mustShow(t *testing.T, answers map[string]any, header http.Header, args ...string) string {
	t.Helper()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			t.Errorf("asked for %s", r.URL.Path)
		}
		for k, v := range header {
			w.Header()[k] = v
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer hub.Close()
	var out bytes.Buffer
	root := rootCommand()
	root.SetOut(&out)
	root.SetArgs(append(args, "--addr", hub.URL))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Errorf("skerry %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// ids of two things that hubs list, the older one first.
const oldID, newID = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"

// someAnswers are those of a hub that has two of everything; list is the answer of the endpoint
// that a test asks for.
func someAnswers(list any) map[string]any {
	job := fleet.Job{ID: "shop", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 2}}}
	stubs := []api.AllocStub{{ID: oldID, Name: "shop.web[0]", CreateIndex: 1}, {ID: newID, Name: "shop.web[0]", CreateIndex: 2}}
	allocs := []fleet.Alloc{{ID: oldID, Name: "shop.web[0]", CreateIndex: 1}, {ID: newID, Name: "nav.web[0]", CreateIndex: 2}}
	node := fleet.Node{ID: "cccccccc-0000-4000-8000-000000000003", Name: "crane", Events: []fleet.NodeEvent{{Message: "aaaaaaaa"}, {Message: "bbbbbbbb"}}}
	alloc := fleet.Alloc{ID: oldID, TaskStates: map[string]fleet.TaskState{"main": {Events: []fleet.TaskEvent{{Type: "aaaaaaaa"}, {Type: "bbbbbbbb"}}}}}
	return map[string]any{
		"/v1/jobs": []api.JobStub{{ID: "shop"}}, "/v1/job/shop": job, "/v1/job/shop/summary": fleet.JobSummary{}, "/v1/job/shop/allocations": stubs,
		"/v1/job/shop/evaluations": someEvals, "/v1/job/shop/deployment": nil, "/v1/job/shop/deployments": list, "/v1/deployments": list,
		"/v1/evaluations": list, "/v1/nodes": []api.NodeStub{{ID: node.ID, Name: node.Name}}, "/v1/node/" + string(node.ID): node,
		"/v1/node/" + string(node.ID) + "/allocations": allocs, "/v1/node/revocations": list, "/v1/join/tokens": list,
		"/v1/allocations": stubs[:1], "/v1/allocation/" + oldID: alloc, "/v1/fleet/status": fleetAtSea(),
		"/v1/allocation/" + oldID + "/history": partition(),
	}
}

var (
	someEvals    = []fleet.Evaluation{{ID: oldID, JobID: "shop", CreateIndex: 1}, {ID: newID, JobID: "shop", CreateIndex: 2}}
	someRollouts = []fleet.Deployment{{ID: oldID, JobID: "shop", CreateIndex: 1}, {ID: newID, JobID: "shop", CreateIndex: 2}}
	someTokens   = []api.JoinToken{{ID: "aaaaaaaa", CreatedAt: time.Unix(1, 0)}, {ID: "bbbbbbbb", CreatedAt: time.Unix(2, 0)}}
	someRevoked  = []fleet.Revocation{{NodeID: oldID, Time: 1}, {NodeID: newID, Time: 2}}
)

// TestNewestFirst lists things whose hub answers with the oldest first, or by id.
func TestNewestFirst(t *testing.T) {
	for _, tc := range []struct {
		list any
		args string
	}{
		{someRollouts, "deployment list"},
		{someRollouts, "deployment status"},
		{someRollouts, "deployment list --json"},
		{someRollouts, "job deployments shop"},
		{someEvals, "eval list"},
		{someEvals, "eval list --json"},
		{nil, "job status --evals --all shop"},
		{nil, "job allocs shop"},
		{nil, "node status crane"},
		{nil, "alloc status aaaaaaaa"},
		{someRevoked, "node revocations"},
		{someTokens, "token list"},
	} {
		out := mustShow(t, someAnswers(tc.list), nil, strings.Fields(tc.args)...)
		var order []string
		for line := range strings.Lines(out) {
			for _, id := range []string{"aaaaaaaa", "bbbbbbbb"} {
				if strings.Contains(line, id) && !strings.Contains(line, "Allocation  ") {
					order = append(order, id)
				}
			}
		}
		for i, id := range order {
			if want := []string{"bbbbbbbb", "aaaaaaaa"}[i%2]; id != want || len(order)%2 != 0 {
				t.Errorf("skerry %s:\n%s", tc.args, out)
				break
			}
		}
		if len(order) == 0 {
			t.Errorf("skerry %s lists none:\n%s", tc.args, out)
		}
	}
}

// TestStaleTables checks that every table of an answer that may be old says so, whichever
// command shows it, and that none else does.
func TestStaleTables(t *testing.T) {
	const mark = "(may be old)"
	for _, tc := range []struct {
		list   any
		args   string
		tables int
	}{
		{someRollouts, "deployment list", 1},
		{someEvals, "eval list", 1},
		{nil, "job status", 1},
		{nil, "job status --evals --all shop", 4}, // the job, its groups, evaluations, allocations
		{nil, "job allocs shop", 1},
		{nil, "node status", 1},
		{nil, "node status crane", 3}, // the node, its events, allocations
		{nil, "alloc history aaaaaaaa", 1},
		{someRevoked, "node revocations", 1},
		{someTokens, "token list", 1},
		{nil, "fleet status", 4}, // hubs, sites, nodes, what waits
		{someRollouts, "deployment list --json", 0},
	} {
		for known, want := range map[string]int{"true": 0, "false": tc.tables} {
			out := mustShow(t, someAnswers(tc.list), http.Header{"X-Nomad-Knownleader": {known}}, strings.Fields(tc.args)...)
			if got := strings.Count(out, mark); got != want {
				t.Errorf("skerry %s, a leader is known: %s: %d marks, want %d:\n%s", tc.args, known, got, want, out)
			}
		}
	}
}
