package api_test

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/api"
	"skerry/fleet"

	"skerry/hub/state"
)

// TestListsShowMoreOrLess asks for lists with the parameters that add or leave out fields.
func TestListsShowMoreOrLess(t *testing.T) {
	h, srv, c := mustServe(t)
	mustJobs(t, c, 1)
	id := mustPlace(t, h, "j00")
	mustReport(t, h, 1, fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: id, ClientStatus: fleet.ClientRunning, Task: "main", Event: &fleet.TaskEvent{Type: fleet.TaskStarted},
	})
	with := func(params ...string) *nomad.QueryOptions {
		q := &nomad.QueryOptions{Params: map[string]string{}}
		for _, p := range params {
			name, value, _ := strings.Cut(p, "=")
			q.Params[name] = value
		}
		return q
	}
	full, _, err := c.Allocations().Info(string(id), nil)
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := c.Allocations().List(nil)
	if err != nil || len(plain) != 1 || plain[0].AllocatedResources != nil || len(plain[0].TaskStates) != 1 {
		t.Fatalf("allocations: %+v, %v", plain, err)
	}
	some, _, err := c.Allocations().List(with("resources=true", "task_states=false"))
	if err != nil || len(some) != 1 || some[0].TaskStates != nil ||
		some[0].AllocatedResources == nil || !reflect.DeepEqual(some[0].AllocatedResources, full.AllocatedResources) {
		t.Errorf("allocations with their resources: %+v, %v", some, err)
	}
	nodes, _, err := c.Nodes().List(nil)
	if err != nil || len(nodes) != 1 || nodes[0].NodeResources != nil || nodes[0].ReservedResources != nil {
		t.Fatalf("nodes: %+v, %v", nodes, err)
	}
	for path, list := range map[string]func(*nomad.QueryOptions) ([]*nomad.NodeListStub, *nomad.QueryMeta, error){
		"nodes": c.Nodes().List,
		"those of a pool": func(q *nomad.QueryOptions) ([]*nomad.NodeListStub, *nomad.QueryMeta, error) {
			return c.NodePools().ListNodes("default", q)
		},
	} {
		got, _, err := list(with("resources=true"))
		if err != nil || len(got) != 1 || got[0].NodeResources == nil || got[0].NodeResources.Memory.MemoryMB != 8192 || got[0].ReservedResources == nil {
			t.Errorf("%s with their resources: %+v, %v", path, got, err)
		}
	}
	for _, path := range []string{
		"/v1/allocations?resources=much", "/v1/allocations?task_states=7", "/v1/nodes?resources=x", "/v1/nodes?os=x", "/v1/jobs/statuses?include_children=x",
		"/v1/job/j00/allocations?all=x", "/v1/job/j00/deployments?all=x", "/v1/node/pool/default/nodes?resources=x",
	} {
		if status, said := mustAnswer(t, "GET", srv.URL+path, ""); status != 400 || !strings.Contains(said, "neither true nor false") {
			t.Errorf("%s: %d %s", path, status, said)
		}
	}
}

// TestRelatedEvaluations asks for the evaluations before and after an evaluation.
func TestRelatedEvaluations(t *testing.T) {
	h, srv, c := mustServe(t)
	mustJobs(t, c, 1)
	first, _, err := c.Jobs().Evaluations("j00", nil)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	root, _ := h.store.View().Eval(fleet.EvalID(first[0].ID))
	id := func(n string) fleet.EvalID { return fleet.EvalID(fleet.DeriveUUID("evaluation", n)) }
	made := func(n string, previous fleet.EvalID) fleet.Evaluation {
		return fleet.Evaluation{ID: id(n), Namespace: "default", JobID: "j00", Priority: 50, Type: "service", Status: fleet.EvalPending, PreviousEval: previous}
	}
	done := *root
	done.BlockedEval = id("blocked")
	mustApply(t, h, state.Evals{Evals: []fleet.Evaluation{done, made("blocked", done.ID), made("again", id("blocked")), made("apart", "")}})
	for _, of := range []fleet.EvalID{done.ID, id("blocked"), id("again")} {
		got, _, err := c.Evaluations().Info(string(of), &nomad.QueryOptions{Params: map[string]string{"related": "true"}})
		if err != nil || len(got.RelatedEvals) != 2 {
			t.Fatalf("of %s: %+v, %v", of, got, err)
		}
		for _, r := range got.RelatedEvals {
			if r.ID == string(of) || r.ID == string(id("apart")) || r.JobID != "j00" || r.Status == "" || r.CreateIndex == 0 {
				t.Errorf("of %s: %+v", of, r)
			}
		}
	}
	if status, said := mustAnswer(t, "GET", srv.URL+"/v1/evaluation/"+string(done.ID), ""); status != 200 || strings.Contains(said, "RelatedEvals") {
		t.Errorf("without asking: %d %s", status, said)
	}
	if status, said := mustAnswer(t, "GET", srv.URL+"/v1/evaluation/"+string(done.ID)+"?related=x", ""); status != 400 {
		t.Errorf("%d %s", status, said)
	}
}

// TestWhatIsNotThereIsWaitedFor blocks on a job until somebody registers it.
func TestWhatIsNotThereIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListFixture(t)
		before := time.Now()
		w := l.sendRequest("GET", "/v1/job/late", "", map[string][]string{"index": {"999"}, "wait": {"10s"}})
		if waited := time.Since(before); w.Code != 404 || waited < 10*time.Second || waited > 11*time.Second {
			t.Errorf("one that does not come: %d after %s", w.Code, waited)
		}
		w = l.sendRequest("GET", "/v1/job/late", "", nil)
		got := make(chan int, 1)
		go func() {
			got <- l.sendRequest("GET", "/v1/job/late", "", map[string][]string{"index": {w.Header().Get("X-Nomad-Index")}, "wait": {"10s"}}).Code
		}()
		synctest.Wait()
		before = time.Now()
		l.registerNamedJob("late")
		if code := <-got; code != 200 || time.Since(before) > 0 {
			t.Errorf("one that comes: %d after %s", code, time.Since(before))
		}
	})
}

// TestWhatComesAndGoesIsToldAtOnce blocks on the list of a pool and of a job that are made and deleted meanwhile: the
// query returns at once, although the listed entries do not change.
func TestWhatComesAndGoesIsToldAtOnce(t *testing.T) {
	for _, tc := range []struct {
		path       string
		make, undo func(l *listFixture)
	}{
		{"/v1/node/pool/late/nodes", func(l *listFixture) {
			mustApply(l.t, l.hub, state.Pool{Pool: fleet.Pool{Name: "late"}})
		}, func(l *listFixture) { mustApply(l.t, l.hub, state.PoolDelete{Name: "late"}) }},
		{"/v1/job/late/services", func(l *listFixture) { l.registerNamedJob("late") }, func(l *listFixture) { l.mustPurge("late") }},
	} {
		t.Run(tc.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newListFixture(t)
				// From an index that no change reaches, and from that of the last answer, which a
				// change while nobody asks has to pass.
				for _, far := range []bool{true, false} {
					for _, step := range []struct {
						change func(l *listFixture)
						status int
					}{{tc.make, 200}, {tc.undo, 404}} {
						index := "9999"
						if !far {
							index = l.sendRequest("GET", tc.path, "", nil).Header().Get("X-Nomad-Index")
							step.change(l)
						}
						got := make(chan int, 1)
						go func() {
							got <- l.sendRequest("GET", tc.path, "", map[string][]string{"index": {index}, "wait": {"10s"}}).Code
						}()
						synctest.Wait()
						before := time.Now()
						if far {
							step.change(l)
						}
						if code := <-got; code != step.status || time.Since(before) > 0 {
							t.Errorf("from %s: %d after %s, want %d at once", index, code, time.Since(before), step.status)
						}
					}
				}
			})
		})
	}
}

// TestOfAnEarlierJob purges a job and registers another of its id.
func TestOfAnEarlierJob(t *testing.T) {
	h, _, c := mustServe(t)
	id, alloc := mustDeploy(t, h)
	seen := func(all bool, allocs, deployments int) {
		t.Helper()
		as, _, err := c.Jobs().Allocations("shop", all, nil)
		ds, _, derr := c.Jobs().Deployments("shop", all, nil)
		if err != nil || derr != nil || len(as) != allocs || len(ds) != deployments {
			t.Errorf("all=%v: allocations %v, deployments %v, %v, %v; there was allocation %s and deployment %s", all, as, ds, err, derr, alloc, id)
		}
	}
	seen(false, 1, 1)
	if _, _, err := c.Jobs().Deregister("shop", true, nil); err != nil {
		t.Fatal(err)
	}
	seen(false, 1, 1)
	if _, _, err := c.Jobs().Register(exampleJob("shop"), nil); err != nil {
		t.Fatal(err)
	}
	seen(false, 0, 0)
	seen(true, 1, 1)
	mustPlace(t, h, "shop")
	seen(false, 1, 0)
	seen(true, 2, 1)
}

// TestThePurgeOfALaterJobIsTold has lists show at once again what there is of an earlier job.
func TestThePurgeOfALaterJobIsTold(t *testing.T) {
	for _, path := range []string{"/v1/job/j0/allocations", "/v1/job/j0/deployments"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newListFixture(t)
				l.mustPurge("j0")
				l.registerNamedJob("j0")
				w := l.sendRequest("GET", path, "", nil)
				if w.Body.String() != "[]\n" {
					t.Fatalf("of the later job: %s", w.Body)
				}
				got := make(chan string, 1)
				go func() {
					got <- l.sendRequest("GET", path, "", map[string][]string{"index": {w.Header().Get("X-Nomad-Index")}, "wait": {"10s"}}).Body.String()
				}()
				synctest.Wait()
				before := time.Now()
				l.mustPurge("j0")
				if list := <-got; list == "[]\n" || time.Since(before) > 0 {
					t.Errorf("after the purge: %.100s after %s", list, time.Since(before))
				}
			})
		})
	}
}

// TestStatusesOfChildren lists what periodic and parameterized jobs made where it is asked for.
func TestStatusesOfChildren(t *testing.T) {
	_, _, c := mustServe(t)
	job := batchJob("resize")
	job.ParameterizedJob = &nomad.ParameterizedJobConfig{Payload: "optional"}
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	made, _, err := c.Jobs().Dispatch("resize", nil, nil, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	read := func(path string) map[fleet.JobID]api.JobStatus {
		t.Helper()
		var list []api.JobStatus
		if _, err := c.Raw().Query("/v1/jobs/statuses"+path, &list, nil); err != nil {
			t.Fatal(err)
		}
		byID := map[fleet.JobID]api.JobStatus{}
		for _, s := range list {
			byID[s.ID] = s
		}
		return byID
	}
	got := read("")
	if len(got) != 2 || len(got["resize"].ChildStatuses) != 1 || got["resize"].ChildStatuses[0] != "pending" || got["web"].ChildStatuses != nil {
		t.Errorf("without children: %+v", got)
	}
	got = read("?include_children=true")
	if len(got) != 3 || got[fleet.JobID(made.DispatchedJobID)].ParentID != "resize" {
		t.Errorf("with children: %+v", got)
	}
	var named []api.JobStatus
	ask := nomad.JobStatusesRequest{Jobs: []nomad.NamespacedID{{ID: made.DispatchedJobID, Namespace: "default"}}}
	if _, err := c.Raw().Write("/v1/jobs/statuses", ask, &named, nil); err != nil || len(named) != 1 {
		t.Errorf("a child by its name: %+v, %v", named, err)
	}
}

func (l *listFixture) mustPurge(id string) {
	l.t.Helper()
	if w := l.sendRequest("DELETE", "/v1/job/"+id, "", map[string][]string{"purge": {"true"}}); w.Code != 200 {
		l.t.Fatalf("purge %s: %d %s", id, w.Code, w.Body)
	}
}
