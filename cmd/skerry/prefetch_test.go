package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
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
