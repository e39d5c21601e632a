package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// mustDeploy registers a job, with a deployment that asks for a canary and has one.
func mustDeploy(t *testing.T, h *fakeHub, change ...func(*fleet.DeploymentState)) (fleet.DeploymentID, fleet.AllocID) {
	t.Helper()
	job := &fleet.Job{ID: "shop", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 3, Tasks: []fleet.Task{{Name: "main", Driver: "sim"}}}}}
	validate.FillDefaults(job)
	mustApply(t, h, state.JobRegister{Job: job, Now: 1})
	mustApply(t, h, state.SessionOpen{NodeID: nodeID, Session: 1, Instance: "i", BootID: "b", Hub: "hub1", EvalSeed: "s", Now: 2})
	j, _ := h.store.View().Job(fleet.DefaultNamespace, "shop")
	d := &fleet.Deployment{
		ID: fleet.DeploymentID(fleet.DeriveUUID("deployment", "1")), Namespace: j.Namespace, JobID: j.ID, JobVersion: j.Version, JobCreateIndex: j.CreateIndex,
		Status: fleet.DeploymentRunning, StatusDescription: fleet.DescNeedsPromotion,
	}
	web := fleet.DeploymentState{DesiredTotal: 3, DesiredCanaries: 1, AutoRevert: true}
	for _, f := range change {
		f(&web)
	}
	d.TaskGroups = map[string]fleet.DeploymentState{"web": web}
	id := fleet.AllocID(fleet.DeriveUUID("alloc", "1"))
	canary := fleet.Alloc{
		ID: id, Namespace: j.Namespace, NodeID: nodeID, JobID: j.ID, JobVersion: j.Version, JobHash: j.SpecHash, TaskGroup: "web",
		Name: "shop.web[0]", DeploymentID: d.ID, DeploymentStatus: &fleet.AllocDeployment{Canary: true},
	}
	mustApply(t, h, state.Plan{NewDeployment: d, Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{nodeID: {canary}}}, Now: 3})
	return d.ID, id
}

// Nomad's own client drives a deployment.
func TestNomadClientDrivesADeployment(t *testing.T) {
	h, _, client := mustServe(t)
	id, alloc := mustDeploy(t, h)
	deployments := client.Deployments()

	t.Run("C56", func(t *testing.T) {
		list, _, err := deployments.List(nil)
		if err != nil || len(list) != 1 || list[0].ID != string(id) || list[0].TaskGroups["web"].DesiredCanaries != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		latest, _, err := client.Jobs().LatestDeployment("shop", nil)
		if err != nil || latest.ID != string(id) || latest.StatusDescription != fleet.DescNeedsPromotion {
			t.Fatalf("%+v, %v", latest, err)
		}
		allocs, _, err := deployments.Allocations(string(id), nil)
		if err != nil || len(allocs) != 1 || allocs[0].ID != string(alloc) || !allocs[0].DeploymentStatus.Canary {
			t.Fatalf("%+v, %v", allocs, err)
		}
		of, _, err := client.Jobs().Deployments("shop", true, nil)
		if err != nil || len(of) != 1 {
			t.Fatalf("%+v, %v", of, err)
		}
	})
	t.Run("C26", func(t *testing.T) {
		_, _, err := deployments.PromoteAll(string(id), nil)
		if err == nil || !strings.Contains(err.Error(), `group "web" has 0/1 healthy allocations`) {
			t.Fatal(err)
		}
	})
	t.Run("C46", func(t *testing.T) {
		for _, pause := range []bool{false, true, true, false} { // running, paused, paused, running
			if _, _, err := deployments.Pause(string(id), pause, nil); err != nil {
				t.Fatal(err)
			}
			want := map[bool]string{true: fleet.DeploymentPaused, false: fleet.DeploymentRunning}[pause]
			if d, _, err := deployments.Info(string(id), nil); err != nil || d.Status != want {
				t.Fatalf("%+v, %v; want %s", d, err, want)
			}
		}
		if d, _, _ := deployments.Info(string(id), nil); d.StatusDescription != fleet.DescNeedsPromotion {
			t.Fatalf("resumed: %q", d.StatusDescription)
		}
	})
	if _, _, err := deployments.SetAllocHealth(string(id), []string{string(alloc)}, nil, nil); err != nil {
		t.Fatal(err)
	}
	res, _, err := deployments.PromoteGroups(string(id), []string{"web"}, nil)
	if err != nil || res.EvalID == "" || res.DeploymentModifyIndex == 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	t.Run("C44", func(t *testing.T) {
		if _, _, err := deployments.Fail(string(id), nil); err != nil {
			t.Fatal(err)
		}
		d, _, err := deployments.Info(string(id), nil)
		if err != nil || d.Status != fleet.DeploymentFailed || !strings.HasPrefix(d.StatusDescription, fleet.DescFailedByUser) {
			t.Fatalf("%+v, %v", d, err)
		}
	})
	for name, call := range map[string]func() error{
		"fail one that is over": func() error { _, _, err := deployments.Fail(string(id), nil); return err },
		"one that is not there": func() error { _, _, err := deployments.Info("11111111-0000-4000-8000-000000000000", nil); return err },
		"unblock":               func() error { _, _, err := deployments.Unblock(string(id), nil); return err },
		"no group": func() error {
			_, _, err := deployments.PromoteGroups(string(id), nil, nil)
			return err
		},
		"no allocation": func() error {
			_, _, err := deployments.SetAllocHealth(string(id), nil, nil, &nomad.WriteOptions{})
			return err
		},
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestProgressSaysWhatComesNext reads the time at which a deployment will fail, the result of
// that, and its failed allocations. A canary that failed, also one that was healthy, does not wait for its promotion.
func TestProgressSaysWhatComesNext(t *testing.T) {
	h, srv, client := mustServe(t)
	first := &fleet.Job{ID: "shop", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 3, Tasks: []fleet.Task{{Name: "main", Driver: "sim", Env: map[string]string{"first": "yes"}}}}}}
	validate.FillDefaults(first)
	mustApply(t, h, state.JobRegister{Job: first, Now: 1})
	if _, _, err := client.Jobs().Stable("shop", 0, true, nil); err != nil {
		t.Fatal(err)
	}
	const long = 100 * 365 * 24 * time.Hour // from 1970, when it is placed
	id, canary := mustDeploy(t, h, func(s *fleet.DeploymentState) { s.ProgressDeadline = long })
	read := func(description string) api.Progress {
		t.Helper()
		var p api.Progress
		code, body := mustGet(t, srv.URL+"/v1/deployment/progress/"+string(id))
		if err := json.Unmarshal([]byte(body), &p); err != nil || code != http.StatusOK {
			t.Fatal(code, err)
		}
		if d, _, err := client.Deployments().Info(string(id), nil); err != nil || d.StatusDescription != description || p.Deployment.StatusDescription != description {
			t.Errorf("%q, %q, %v; want %q", d.StatusDescription, p.Deployment.StatusDescription, err, description)
		}
		return p
	}
	health := func(c state.AllocHealth) {
		c.DeploymentID, c.Now = id, 4
		mustApply(t, h, c)
	}

	p := read(fleet.DescNeedsPromotion)
	if o := p.Outlook; o == nil || o.Deadline == nil || !o.Deadline.Equal(time.Unix(0, 3).Add(long)) || o.RevertsTo == nil || *o.RevertsTo != 0 ||
		o.Description != fleet.DescRollback(fleet.DescProgressDeadline, 0) || len(p.Failed) != 0 {
		t.Errorf("it runs: %+v, failed %+v", o, p.Failed)
	}
	health(state.AllocHealth{Unhealthy: []fleet.AllocID{canary}})
	p = read(fleet.DescFailedCanaries)
	if o := p.Outlook; o == nil || o.Deadline == nil || len(p.Failed) != 1 || p.Failed[0].ID != canary {
		t.Errorf("a canary failed: %+v, failed %+v", o, p.Failed)
	}
	if scale, _, err := client.Jobs().ScaleStatus("shop", nil); err != nil || scale.TaskGroups["web"].Unhealthy != 1 {
		t.Errorf("a canary failed: scale %+v, %v", scale, err)
	}
	health(state.AllocHealth{Healthy: []fleet.AllocID{canary}})
	p = read(fleet.DescNeedsPromotion)
	if o := p.Outlook; o == nil || o.Deadline != nil || len(p.Failed) != 0 {
		t.Errorf("it waits for its promotion: %+v, failed %+v", o, p.Failed)
	}
	requiresPromotion := func() bool {
		t.Helper()
		var list []api.JobStatus
		if _, err := client.Raw().Query("/v1/jobs/statuses", &list, nil); err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0].LatestDeployment.RequiresPromotion
	}
	mustReport(t, h, 1, fleet.Transition{Kind: fleet.TransitionAlloc, Alloc: canary, ClientStatus: fleet.ClientFailed})
	p = read(fleet.DescFailedCanaries)
	if n := p.Total("web"); n != (api.SiteProgress{Failed: 1}) || len(p.Failed) != 1 || !requiresPromotion() {
		t.Errorf("a healthy canary failed: %+v, failed %+v, requires promotion: %t", n, p.Failed, requiresPromotion())
	}
	if _, _, err := client.Deployments().Fail(string(id), nil); err != nil {
		t.Fatal(err)
	}
	if p := read(fleet.DescRollback(fleet.DescFailedByUser, 0)); p.Outlook != nil {
		t.Errorf("it is over: %+v", p.Outlook)
	}
	if requiresPromotion() {
		t.Error("it is over, and requires its promotion")
	}
}
