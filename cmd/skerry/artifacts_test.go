package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestArtifactAndTemplateForReal runs a hub, an edge and a task whose program is an artifact, and whose file and
// variable are templates. The task starts again when the source of the artifact is gone.
func TestArtifactAndTemplateForReal(t *testing.T) {
	t.Parallel()
	hubAddress := mustDev(t)
	var requests atomic.Int64
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = io.WriteString(w, "cat local/conf; echo \"$FROM_TEMPLATE\"; sleep 3600\n")
	}))
	defer source.Close()
	job := fmt.Sprintf(`{"Job": {"ID": "shop", "Type": "service", "Datacenters": ["*"], "TaskGroups": [{"Name": "web",
		"Tasks": [{"Name": "run", "Driver": "raw_exec", "Config": {"command": "/bin/sh", "args": ["local/run.sh"]},
			"Artifacts": [{"GetterSource": "%s/run.sh"}],
			"Templates": [{"EmbeddedTmpl": "I am {{ env \"NOMAD_ALLOC_NAME\" }} in {{ env \"node.datacenter\" }}\n", "DestPath": "local/conf"},
				{"EmbeddedTmpl": "FROM_TEMPLATE=\"x y\"", "DestPath": "secrets/env", "Envvars": true}],
			"Resources": {"CPU": 50, "MemoryMB": 50}}]}]}}`, source.URL)
	mustAnswer(t, http.MethodPut, hubAddress+"/v1/jobs", job, nil)
	const once = "I am shop.web[0] in dc1\nx y\n"
	var allocs []struct{ ID string }
	output := func(want string) func() string {
		return func() string {
			mustAnswer(t, http.MethodGet, hubAddress+"/v1/job/shop/allocations", "", &allocs)
			if len(allocs) != 1 {
				return fmt.Sprintf("%+v", allocs)
			}
			var a any
			mustAnswer(t, http.MethodGet, hubAddress+"/v1/allocation/"+allocs[0].ID, "", &a)
			got, err := getText(t, hubAddress+"/v1/client/fs/logs/"+allocs[0].ID+"?task=run&type=stdout&plain=true")
			if got == want {
				return ""
			}
			return fmt.Sprintf("%q, %v; the allocation is %+v", got, err, a)
		}
	}
	eventually(t, "the task has written what it was given", output(once))
	source.Close()
	mustAnswer(t, http.MethodPut, hubAddress+"/v1/client/allocation/"+allocs[0].ID+"/restart", `{"TaskName": "run"}`, nil)
	eventually(t, "the task has started again without the source", output(once+once))
	if n := requests.Load(); n != 1 {
		t.Errorf("the artifact was fetched %d times", n)
	}
}

func getText(t *testing.T, address string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, b)
	}
	return string(b), err
}
