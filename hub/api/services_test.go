package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// jobWithServices is a job whose allocations offer a service at a fixed port.
func jobWithServices(id string) *nomad.Job {
	job := exampleJob(id)
	job.TaskGroups[0].Services = []*nomad.Service{{Name: id, Provider: "nomad", PortLabel: "8080", Tags: []string{"b", "a"}}}
	return job
}

// mustRun makes placed allocations run, by what their edge says.
func mustRun(tb testing.TB, h *fakeHub, first fleet.Seq, ids ...fleet.AllocID) {
	tb.Helper()
	var rows []fleet.Transition
	for _, id := range ids {
		rows = append(rows, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning})
	}
	mustReport(tb, h, first, rows...)
}

// mustReport has the edge say so, beginning with a number.
func mustReport(tb testing.TB, h *fakeHub, first fleet.Seq, rows ...fleet.Transition) {
	tb.Helper()
	n, _ := h.store.View().Node(nodeID)
	batch := state.NodeRows{NodeID: nodeID, Epoch: n.Epoch, First: first, Prev: n.ChainHash}
	for i, row := range rows {
		row.Seq, row.BootID = first+fleet.Seq(i), "b"
		row, err := syncproto.EncodeRow(row)
		if err != nil {
			tb.Fatal(err)
		}
		batch.Rows = append(batch.Rows, row)
	}
	if res := mustApply(tb, h, state.AllocUpdates{Batches: []state.NodeRows{batch}, EvalSeed: "s", Now: 4}); res.Updates[0].Code != "" {
		tb.Fatalf("not applied: %+v", res.Updates)
	}
}

// Nomad's own client finds services, waits for a change of them, and sees that they go
// with what offers them.
func TestNomadClientFindsServices(t *testing.T) {
	h, _, c := mustServe(t)
	mustApply(t, h, state.NodeRegister{Node: fleet.Node{
		ID: nodeID, Name: "edge1", Datacenter: "dc1", NodePool: "default", DescriptionHash: "h",
		Attributes: map[string]string{fleet.AttributeIPAddress: "10.0.0.5"},
	}, Now: 1})
	if list, _, err := c.Services().List(nil); err != nil || len(list) != 0 {
		t.Fatalf("services of nothing: %+v, %v", list, err)
	}
	if _, _, err := c.Jobs().Register(jobWithServices("web"), nil); err != nil {
		t.Fatal(err)
	}
	first, second := mustPlace(t, h, "web"), mustPlace(t, h, "web")
	_, meta, err := c.Services().Get("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan int, 1)
	go func() {
		list, _, err := c.Services().Get("web", &nomad.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 30 * time.Second})
		if err != nil {
			got <- -1
			return
		}
		got <- len(list)
	}()
	mustRun(t, h, 1, first, second)
	if n := <-got; n != 2 {
		t.Fatalf("a query that waited for the service found %d", n)
	}
	list, _, err := c.Services().List(&nomad.QueryOptions{Namespace: "*"})
	if err != nil || len(list) != 1 || list[0].Namespace != "default" || len(list[0].Services) != 1 ||
		list[0].Services[0].ServiceName != "web" || strings.Join(list[0].Services[0].Tags, " ") != "a b" {
		t.Fatalf("services %+v, %v", list, err)
	}
	web, _, err := c.Services().Get("web", nil)
	if err != nil || len(web) != 2 || web[0].Address != "10.0.0.5" || web[0].Port != 8080 || web[0].JobID != "web" || web[0].NodeID != string(nodeID) {
		t.Fatalf("service web: %+v, %v", web, err)
	}
	if of, _, err := c.Jobs().Services("web", nil); err != nil || len(of) != 2 {
		t.Errorf("services of the job: %+v, %v", of, err)
	}
	if of, _, err := c.Allocations().Services(string(first), nil); err != nil || len(of) != 1 || of[0].AllocID != string(first) {
		t.Errorf("services of the allocation: %+v, %v", of, err)
	}
	if _, _, err := c.Jobs().Services("nope", nil); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("services of no job: %v", err)
	}
	chosen := map[string]bool{}
	for range 5 {
		list, _, err := c.Services().Get("web", &nomad.QueryOptions{Params: map[string]string{"choose": "1|key"}})
		if err != nil || len(list) != 1 {
			t.Fatalf("chosen: %+v, %v", list, err)
		}
		chosen[list[0].ID] = true
	}
	if len(chosen) != 1 {
		t.Errorf("one key is given %v", chosen)
	}
	some, _, err := c.Services().Get("web", &nomad.QueryOptions{Filter: `AllocID == "` + string(first) + `"`})
	if err != nil || len(some) != 1 || some[0].AllocID != string(first) {
		t.Errorf("filtered: %+v, %v", some, err)
	}
	if _, err := c.Services().Delete("web", web[0].ID, nil); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("deleted what runs: %v", err)
	}
	if _, err := c.Services().Delete("web", "nope", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("deleted what is not there: %v", err)
	}
	t.Run("what is to end", func(t *testing.T) { servicesOfWhatEnds(t, h, c, second) })
	t.Run("an edge that is away", func(t *testing.T) { servicesOfAbsent(t, h, c) })
}

// servicesOfWhatEnds has an edge end an allocation of its own accord (its leader has
// ended, say): its services are gone when the shutdown_delay begins, and who waits for
// that hears of it.
func servicesOfWhatEnds(t *testing.T, h *fakeHub, c *nomad.Client, id fleet.AllocID) {
	_, before, err := c.Services().Get("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		list, _, err := c.Services().Get("web", &nomad.QueryOptions{WaitIndex: before.LastIndex, WaitTime: 30 * time.Second})
		var ids []string
		for _, r := range list {
			ids = append(ids, r.AllocID)
		}
		got <- fmt.Sprint(strings.Contains(strings.Join(ids, " "), string(id)), len(ids), err)
	}()
	a, ok := h.store.View().Alloc(id)
	if !ok {
		t.Fatalf("no allocation %s", id)
	}
	task := a.Job.TaskGroups[0].Tasks[0].Name
	mustReport(t, h, 3, fleet.Transition{
		Kind: fleet.TransitionTask, Alloc: id, Task: task, TaskState: &fleet.TaskState{State: fleet.TaskRunning},
		Event: &fleet.TaskEvent{Type: fleet.TaskWaitsToStop},
	})
	if said := <-got; said != "false 1 <nil>" {
		t.Fatalf("the services of the other one alone: %s", said)
	}
	mustReport(t, h, 4, fleet.Transition{ // so that what follows has two
		Kind: fleet.TransitionTask, Alloc: id, Task: task, TaskState: &fleet.TaskState{State: fleet.TaskRunning},
		Event: &fleet.TaskEvent{Type: fleet.TaskStarted},
	})
}

func servicesOfAbsent(t *testing.T, h *fakeHub, c *nomad.Client) {
	_, before, err := c.Services().Get("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := h.store.View().Node(nodeID)
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: n.Epoch, Reason: "silent"}}, EvalSeed: "s", Now: 5})
	list, after, err := c.Services().Get("web", nil)
	if err != nil || len(list) != 0 || after.LastIndex <= before.LastIndex {
		t.Errorf("out of reach: %+v at %d, it was %d, %v", list, after.LastIndex, before.LastIndex, err)
	}
	if all, _, err := c.Services().List(nil); err != nil || len(all) != 0 {
		t.Errorf("listed: %+v, %v", all, err)
	}
	known, _, err := c.Services().Get("web", &nomad.QueryOptions{Params: map[string]string{"unreachable": "true"}})
	if err != nil || len(known) != 2 {
		t.Errorf("asked for: %+v, %v", known, err)
	}
	none, _, err := c.Services().Get("web", &nomad.QueryOptions{Filter: `Status == "reachable"`, Params: map[string]string{"unreachable": "true"}})
	if err != nil || len(none) != 0 {
		t.Errorf("filtered by status: %+v, %v", none, err)
	}
}

// A change that concerns no service does not wake a client that waits for services.
func TestServicesHaveAnIndexOfTheirOwn(t *testing.T) {
	h, _, c := mustServe(t)
	for _, job := range []*nomad.Job{jobWithServices("web"), exampleJob("other")} {
		if _, _, err := c.Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
	}
	web, other := mustPlace(t, h, "web"), mustPlace(t, h, "other")
	mustRun(t, h, 1, web)
	_, before, err := c.Services().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, h, 2, other)
	if _, after, err := c.Services().List(nil); err != nil || after.LastIndex != before.LastIndex {
		t.Errorf("index %d, it was %d, %v", after.LastIndex, before.LastIndex, err)
	}
}

func TestBadQueriesForServices(t *testing.T) {
	_, srv, _ := mustServe(t)
	for _, path := range []string{
		"/v1/service/web?choose=2", "/v1/service/web?choose=x|y", "/v1/service/web?choose=0|y", "/v1/service/web?choose=1|",
		"/v1/services?unreachable=maybe", "/v1/service/web?filter=%3D%3D", "/v1/services?filter=%3D%3D",
	} {
		res, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close() // it was read for its status
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: status %d", path, res.StatusCode)
		}
	}
}
