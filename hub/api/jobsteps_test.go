package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// fails checks that a call was refused with a status and a reason.
func fails(tb testing.TB, what string, err error, says ...string) {
	tb.Helper()
	if err == nil {
		tb.Errorf("%s: no error, want %q", what, says)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			tb.Errorf("%s: %v, want %q", what, err, s)
		}
	}
}

func TestNomadClientScalesAJob(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	mustPlace(t, h, "web")
	five := 5
	res, _, err := c.Jobs().Scale("web", "site", &five, "busy", false, map[string]any{"load": 0.7}, nil)
	if err != nil || res.EvalID == "" || res.JobModifyIndex == 0 {
		t.Fatalf("scale: %+v, %v", res, err)
	}
	eval, _, err := c.Evaluations().Info(res.EvalID, nil)
	if err != nil || eval.TriggeredBy != "job-scaling" || eval.Status != "pending" {
		t.Fatalf("evaluation: %+v, %v", eval, err)
	}
	if _, _, err := c.Jobs().Scale("web", "site", nil, "confused", true, nil, nil); err != nil {
		t.Fatal(err)
	}
	status, _, err := c.Jobs().ScaleStatus("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	g := status.TaskGroups["site"]
	if g.Desired != 5 || g.Placed != 1 || g.Running != 0 || len(g.Events) != 2 {
		t.Fatalf("status: %+v", status)
	}
	if e := g.Events[0]; !e.Error || e.Message != "confused" || e.Count != nil || e.EvalID != nil {
		t.Errorf("newest event: %+v", e)
	}
	if e := g.Events[1]; *e.Count != 5 || e.PreviousCount != 2 || *e.EvalID != res.EvalID || e.Meta["load"] != 0.7 || e.Time == 0 {
		t.Errorf("first event: %+v", e)
	}
	minus, many := -1, fleet.JobCountMax+1
	scale := func(job, group string, count *int, isError bool) error {
		_, _, err := c.Jobs().Scale(job, group, count, "", isError, nil, nil)
		return err
	}
	fails(t, "a job that there is none of", scale("nope", "site", &five, false), "404")
	fails(t, "a group that there is none of", scale("web", "nope", &five, false), "400", "it has: site")
	fails(t, "no group", scale("web", "", &five, false), "400", "no group is named")
	fails(t, "an error with a count", scale("web", "site", &five, true), "400", "error")
	fails(t, "a negative count", scale("web", "site", &minus, false), "400", "-1")
	fails(t, "a count beyond all bounds", scale("web", "site", &many, false), "400", "50000")
	_, _, err = c.Jobs().ScaleWithRequest("web", &nomad.ScalingRequest{Target: map[string]string{"Group": "site", "Job": "other"}}, nil)
	fails(t, "another job", err, "400", `"other"`)
	_, _, err = c.Jobs().ScaleWithRequest("web", &nomad.ScalingRequest{
		Target: map[string]string{"Group": "site"}, Message: strings.Repeat("x", fleet.MaxScalingMessage+1)}, nil)
	fails(t, "a long message", err, "400", "message")
	_, _, err = c.Jobs().ScaleWithRequest("web", &nomad.ScalingRequest{
		Target: map[string]string{"Group": "site"}, Meta: map[string]any{"x": strings.Repeat("x", fleet.MaxScalingMeta)}}, nil)
	fails(t, "much meta", err, "400", "meta")
	system := exampleJob("all")
	kind := "system"
	one := 1
	system.Type, system.TaskGroups[0].Count = &kind, &one
	if _, _, err := c.Jobs().Register(system, nil); err != nil {
		t.Fatal(err)
	}
	fails(t, "a system job", scale("all", "site", &five, false), "400", "every node")
}

// C55: the API refuses to scale a job while a deployment of it goes on.
func TestScaleDuringADeployment(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	job, _ := h.store.View().Job("default", "web")
	mustApply(t, h, state.Plan{Now: 4, NewDeployment: &fleet.Deployment{
		ID: "d1", Namespace: "default", JobID: "web", JobCreateIndex: job.CreateIndex, Status: fleet.DeploymentRunning}})
	five := 5
	_, _, err := c.Jobs().Scale("web", "site", &five, "", false, nil, nil)
	fails(t, "C55", err, "409", "active deployment")
}

func TestNomadClientEvaluatesAJob(t *testing.T) {
	h, srv, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	first, _, err := c.Jobs().ForceEvaluate("web", nil)
	if err != nil || first == "" {
		t.Fatalf("%q, %v", first, err)
	}
	second, _, err := c.Jobs().EvaluateWithOpts("web", nomad.EvalOptions{ForceReschedule: true}, nil)
	if err != nil || second == first {
		t.Fatalf("%q after %q, %v", second, first, err)
	}
	if e, ok := h.store.View().Eval(fleet.EvalID(second)); !ok || e.JobID != "web" || e.Status != fleet.EvalPending {
		t.Fatalf("evaluation: %+v", e)
	}
	_, _, err = c.Jobs().ForceEvaluate("nope", nil)
	fails(t, "a job that there is none of", err, "404")
	job := batchJob("nightly")
	cron := "0 3 * * *"
	job.Periodic = &nomad.PeriodicConfig{Spec: &cron}
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	_, _, err = c.Jobs().ForceEvaluate("nightly", nil)
	fails(t, "a periodic job", err, "400", "periodic")
	if status, text := mustPut(t, srv.URL+"/v1/job/web/evaluate", `{"JobID":"other"}`); status != 400 {
		t.Errorf("a body of another job: %d %s", status, text)
	}
}

func TestNomadClientReadsTheSource(t *testing.T) {
	_, srv, c := mustServe(t)
	sub := &nomad.JobSubmission{
		Source: "job \"web\" {}", Format: "hcl2", VariableFlags: map[string]string{"a": "b"}, Variables: "c = 1",
	}
	if _, _, err := c.Jobs().RegisterOpts(exampleJob("web"), &nomad.RegisterOptions{Submission: sub}, nil); err != nil {
		t.Fatal(err)
	}
	got, _, err := c.Jobs().Submission("web", 0, nil)
	if err != nil || got.Source != sub.Source || got.Format != "hcl2" || got.VariableFlags["a"] != "b" || got.Variables != "c = 1" {
		t.Fatalf("%+v, %v", got, err)
	}
	next := exampleJob("web")
	next.SetMeta("a", "b")
	big := &nomad.JobSubmission{Source: strings.Repeat("x", fleet.MaxSubmission+1), Format: "hcl2"}
	reg, _, err := c.Jobs().RegisterOpts(next, &nomad.RegisterOptions{Submission: big}, nil)
	if err != nil || !strings.Contains(reg.Warnings, "is not kept") {
		t.Fatalf("a source that is too large: %+v, %v", reg, err)
	}
	_, _, err = c.Jobs().Submission("web", 1, nil)
	fails(t, "a version without a source", err, "404", "the file of version 1 is not kept")
	_, _, err = c.Jobs().Submission("web", 7, nil)
	fails(t, "a version that there is none of", err, "404", "version 7")
	_, _, err = c.Jobs().Submission("nope", 0, nil)
	fails(t, "a job that there is none of", err, "404")
	_, _, err = c.Jobs().RegisterOpts(next, &nomad.RegisterOptions{Submission: &nomad.JobSubmission{Source: "x", Format: "toml"}}, nil)
	fails(t, "an unknown format", err, "400", "toml")
	resp, err := http.Get(srv.URL + "/v1/job/web/submission?version=last")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("a version that is no number: %d", resp.StatusCode)
	}
}

func TestNomadClientTagsVersions(t *testing.T) {
	_, srv, c := mustServe(t)
	for n := range 3 {
		job := exampleJob("web")
		job.SetMeta("n", fmt.Sprint(n))
		if _, _, err := c.Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Jobs().TagVersion("web", 0, "golden", "the first", nil); err != nil {
		t.Fatal(err)
	}
	v, _, err := c.Jobs().VersionByTag("web", "golden", nil)
	if err != nil || *v.Version != 0 || v.VersionTag.Description != "the first" || v.VersionTag.TaggedTime == 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	versions, diffs, _, err := c.Jobs().VersionsOpts("web", &nomad.VersionsOptions{Diffs: true, DiffTag: "golden"}, nil)
	if err != nil || len(versions) != 3 || len(diffs) != 3 || diffs[0].Type != "Edited" || diffs[2].Type != "None" {
		t.Fatalf("%d versions, %+v, %v", len(versions), diffs, err)
	}
	if f := diffs[0].Fields; len(f) != 1 || f[0].Old != "0" || f[0].New != "2" {
		t.Fatalf("version 2 against the first: %+v", diffs[0])
	}
	one := uint64(1)
	if _, diffs, _, err = c.Jobs().VersionsOpts("web", &nomad.VersionsOptions{Diffs: true, DiffVersion: &one}, nil); err != nil || diffs[1].Type != "None" {
		t.Fatalf("%+v, %v", diffs, err)
	}
	_, err = c.Jobs().TagVersion("web", 1, "golden", "", nil)
	fails(t, "a name that another version has", err, "409", "version 0")
	_, err = c.Jobs().TagVersion("web", 9, "x", "", nil)
	fails(t, "a version that there is none of", err, "404")
	_, err = c.Jobs().TagVersion("web", 1, strings.Repeat("x", 129), "", nil)
	fails(t, "a long name", err, "400", "128")
	_, _, _, err = c.Jobs().VersionsOpts("web", &nomad.VersionsOptions{Diffs: true, DiffTag: "nope"}, nil)
	fails(t, "a tag that there is none of", err, "404", `"nope"`)
	if _, err := c.Jobs().UntagVersion("web", "golden", nil); err != nil {
		t.Fatal(err)
	}
	_, err = c.Jobs().UntagVersion("web", "golden", nil)
	fails(t, "untagging twice", err, "404")
	for _, q := range []string{"diff_version=x", "diff_version=1&diff_tag=a"} {
		resp, err := http.Get(srv.URL + "/v1/job/web/versions?diffs=true&" + q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("%s: %d", q, resp.StatusCode)
		}
	}
}

// H13: preserve-counts keeps the count that a scaler has set.
func TestNomadClientPreservesCounts(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	seven := 7
	if _, _, err := c.Jobs().Scale("web", "site", &seven, "", false, nil, nil); err != nil {
		t.Fatal(err)
	}
	job := exampleJob("web")
	job.SetMeta("a", "b")
	if _, _, err := c.Jobs().RegisterOpts(job, &nomad.RegisterOptions{PreserveCounts: true}, nil); err != nil {
		t.Fatal(err)
	}
	if j, _ := h.store.View().Job("default", "web"); j.TaskGroups[0].Count != 7 || j.Meta["a"] != "b" {
		t.Fatalf("count %d, meta %v", j.TaskGroups[0].Count, j.Meta)
	}
}

// FuzzScale sends anything as the body of a scaling: it is taken or refused, and what
// is taken can be read back.
func FuzzScale(f *testing.F) {
	f.Add([]byte(`{"Count":3,"Target":{"Group":"site"},"Meta":{"a":[1,{"b":null}]}}`))
	f.Add([]byte(`{"Count":-1,"Target":{"Group":"site"}}`))
	f.Add([]byte(`{"Target":{"Group":"site"},"Error":true,"Message":"x"}`))
	_, srv, c := mustServe(f)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		status, text := mustPut(t, srv.URL+"/v1/job/web/scale", string(body))
		if status != 200 && (status < 400 || status >= 500) {
			t.Fatalf("%q: %d %s", body, status, text)
		}
		got, _, err := c.Jobs().ScaleStatus("web", nil)
		if err != nil || len(got.TaskGroups["site"].Events) > fleet.ScalingEventsKept {
			t.Fatalf("%+v, %v", got, err)
		}
		if status == 200 && !json.Valid([]byte(text)) {
			t.Fatalf("answered %q", text)
		}
	})
}

// H16: deregistering an unknown job succeeds; a stopped job stays, a purged one goes; the evaluation has the requested
// priority.
func TestDeregister(t *testing.T) {
	h, srv, c := mustServe(t)
	eval, _, err := c.Jobs().Deregister("nope", true, nil)
	if err != nil || eval != "" {
		t.Fatalf("a job that there is none of: %q, %v", eval, err)
	}
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	eval, _, err = c.Jobs().DeregisterOpts("web", &nomad.DeregisterOptions{EvalPriority: 77}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := h.store.View().Eval(fleet.EvalID(eval))
	job, ok := h.store.View().Job("default", "web")
	if e == nil || e.Priority != 77 || e.TriggeredBy != "job-deregister" || !ok || !job.Stop || e.JobModifyIndex != job.JobModifyIndex {
		t.Fatalf("evaluation %+v of %+v", e, job)
	}
	done := *e
	done.Status = fleet.EvalComplete
	mustApply(t, h, state.Evals{Evals: []fleet.Evaluation{done}, Now: 9})
	for ev := range h.store.View().EvalsByJob("default", "web") {
		over := *ev
		over.Status = fleet.EvalComplete
		mustApply(t, h, state.Evals{Evals: []fleet.Evaluation{over}, Now: 9})
	}
	if job, _ := h.store.View().Job("default", "web"); job.Status != fleet.JobStatusDead {
		t.Fatalf("a stopped job is %s", job.Status)
	}
	_, _, err = c.Jobs().DeregisterOpts("web", &nomad.DeregisterOptions{EvalPriority: 101}, nil)
	fails(t, "a priority beyond all bounds", err, "400", "101")
	if eval, _, err = c.Jobs().Deregister("web", true, nil); err != nil || eval == "" {
		t.Fatalf("purge: %q, %v", eval, err)
	}
	if _, ok := h.store.View().Job("default", "web"); ok {
		t.Fatal("a purged job is there")
	}
	req, err := http.NewRequest(http.MethodDelete, srv.URL+"/v1/job/web?eval_priority=high", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("a priority that is no number: %d", resp.StatusCode)
	}
}

// E11: a report of an edge moves the index of the allocations of its own node alone.
func TestIndexOfANodesAllocations(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	job, _ := h.store.View().Job("default", "web")
	nodes := []fleet.NodeID{nodeID, fleet.NodeID(fleet.NewUUID(nil)), fleet.NodeID(fleet.NewUUID(nil))}
	var allocs []fleet.Alloc
	for _, id := range nodes {
		mustApply(t, h, state.SessionOpen{NodeID: id, Session: 1, Instance: "i", BootID: "b", Hub: "hub1", EvalSeed: "s", Now: 2,
			Node: &fleet.Node{ID: id, Name: string(id), Datacenter: "dc1", NodePool: "default"}})
		a := fleet.Alloc{
			ID: fleet.AllocID(fleet.NewUUID(nil)), Namespace: "default", NodeID: id, JobID: "web", Job: job, JobVersion: job.Version,
			JobHash: job.SpecHash, TaskGroup: "site", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
		}
		allocs = append(allocs, a)
		mustApply(t, h, state.Plan{Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{id: {a}}}, Jobs: []*fleet.Job{job}, Now: 3})
	}
	indexes := func() []uint64 {
		var out []uint64
		for _, id := range nodes {
			_, meta, err := c.Nodes().Allocations(string(id), nil)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, meta.LastIndex)
		}
		return out
	}
	before := indexes()
	update := state.AllocUpdates{EvalSeed: "s", Now: 4}
	for i := range 2 {
		row, err := syncproto.EncodeRow(fleet.Transition{
			Seq: 1, BootID: "b", Kind: fleet.TransitionAlloc, Alloc: allocs[i].ID, ClientStatus: fleet.ClientRunning})
		if err != nil {
			t.Fatal(err)
		}
		n, _ := h.store.View().Node(nodes[i])
		update.Batches = append(update.Batches, state.NodeRows{NodeID: nodes[i], Epoch: n.Epoch, First: 1, Rows: [][]byte{row}})
	}
	for _, b := range mustApply(t, h, update).Updates {
		if b.Code != "" {
			t.Fatalf("not applied: %+v", b)
		}
	}
	after := indexes()
	if after[0] <= before[0] || after[1] <= before[1] || after[2] != before[2] {
		t.Fatalf("indexes %v, then %v: the third node said nothing", before, after)
	}
}
