package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"skerry/api"
	"skerry/fleet"
)

// TestPrefetchForReal has an edge fetch what a job without allocations needs. The source goes away, and an allocation
// is placed and runs all the same.
func TestPrefetchForReal(t *testing.T) {
	t.Parallel()
	hubAddress := mustDev(t)
	var requests atomic.Int64
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = io.WriteString(w, "echo prefetched; sleep 3600\n")
	}))
	defer source.Close()
	mustAnswer(t, http.MethodPut, hubAddress+"/v1/jobs", fmt.Sprintf(`{"Job": {"ID": "shop", "Type": "service", "Datacenters": ["*"], "TaskGroups": [{"Name": "web", "Count": 0,
		"Tasks": [{"Name": "run", "Driver": "raw_exec", "Config": {"command": "/bin/sh", "args": ["local/run.sh"]},
			"Artifacts": [{"GetterSource": "%s/${NOMAD_TASK_NAME}.sh"}], "Resources": {"CPU": 50, "MemoryMB": 50}}]}]}}`, source.URL), nil)
	prefetch := hubAddress + "/v1/job/shop/prefetch"
	var list []struct{ State, StateDescription, NodeStatus string }
	state := func(want string) func() string {
		return func() string {
			mustAnswer(t, http.MethodGet, prefetch, "", &list)
			if len(list) == 1 && list[0].State == want {
				return ""
			}
			return fmt.Sprintf("%+v", list)
		}
	}
	mustAnswer(t, http.MethodPut, prefetch, `{"NodePool": "default"}`, nil)
	eventually(t, "the artifact is fetched", state("done"))
	if list[0].StateDescription != "artifacts: 1, images: 0" || requests.Load() != 1 {
		t.Errorf("%+v after %d requests", list, requests.Load())
	}
	source.Close()
	mustAnswer(t, http.MethodPut, hubAddress+"/v1/job/shop/scale", `{"Count": 1, "Target": {"Group": "web"}}`, nil)
	var allocs []struct{ ID string }
	eventually(t, "the task has run what was fetched", func() string {
		mustAnswer(t, http.MethodGet, hubAddress+"/v1/job/shop/allocations", "", &allocs)
		if len(allocs) != 1 {
			return fmt.Sprintf("%+v", allocs)
		}
		if got, err := getText(t, hubAddress+"/v1/client/fs/logs/"+allocs[0].ID+"?task=run&type=stdout&plain=true"); got != "prefetched\n" {
			return fmt.Sprintf("%q, %v", got, err)
		}
		return ""
	})
	mustAnswer(t, http.MethodDelete, prefetch, "", nil)
	eventually(t, "the contents are let go", func() string {
		mustAnswer(t, http.MethodGet, prefetch, "", &list)
		if len(list) == 0 {
			return ""
		}
		return fmt.Sprintf("%+v", list)
	})
}

func TestPrefetchCommands(t *testing.T) {
	node := fleet.NodeID(newID)
	done := fleet.Prefetch{NodeID: oldID, JobVersion: 3, State: fleet.PrefetchDone, StateDescription: "artifacts: 1, images: 0"}
	failed := fleet.Prefetch{NodeID: node, JobVersion: 3, State: fleet.PrefetchFailed, StateDescription: "no route"}
	ending := fleet.Prefetch{NodeID: node, JobVersion: 2, State: fleet.PrefetchDone, Ending: true}
	answers := map[string]any{
		"/v1/jobs": []api.JobStub{{ID: "shop"}}, "/v1/nodes": []api.NodeStub{{ID: node, Name: "crane"}},
		"/v1/job/shop/prefetch": []api.PrefetchStub{
			{Prefetch: failed, NodeName: "crane", NodeStatus: fleet.NodeReady}, {Prefetch: done, NodeName: "barge", NodeStatus: fleet.NodeDisconnected}, {Prefetch: ending, NodeName: "tug"},
		},
	}
	table := mustShow(t, answers, nil, "job", "prefetch", "--status", "shop")
	var rows []string
	for line := range strings.Lines(table) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	for i, want := range []string{
		"NODE NAME NODE STATUS VERSION STATE SINCE", "aaaaaaaa barge disconnected 3 done: artifacts: 1, images: 0", "bbbbbbbb crane ready 3 failed: no route", "bbbbbbbb tug 2 ending",
	} {
		if len(rows) != 4 || !strings.HasPrefix(rows[i], want) {
			t.Errorf("row %d is not %q:\n%s", i, want, table)
		}
	}
	answers["/v1/job/shop/prefetch"] = api.PrefetchAnswer{JobVersion: 3, NodeIDs: []fleet.NodeID{node}, Warnings: "1 of 1 nodes are away"}
	if said := mustShow(t, answers, nil, "job", "prefetch", "--node", "crane", "--version", "3", "shop"); !strings.Contains(said, `1 node to fetch the artifacts and images of version 3 of job "shop"`) {
		t.Errorf("it says %q", said)
	}
	if said := mustShow(t, answers, nil, "job", "prefetch", "--cancel", "shop"); !strings.Contains(said, `let go the contents that they fetched for job "shop"`) {
		t.Errorf("it says %q", said)
	}
}
