package api_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"
)

func TestNomadClientReadsScalingPolicies(t *testing.T) {
	_, srv, c := mustServe(t)
	if list, _, err := c.Scaling().ListPolicies(nil); err != nil || list == nil || len(list) != 0 {
		t.Fatalf("of no job: %v, %v", list, err)
	}
	most, enabled := int64(7), false
	for _, id := range []string{"api", "shop"} {
		job := exampleJob(id)
		job.TaskGroups[0].Scaling = &nomad.ScalingPolicy{Max: &most, Enabled: &enabled, Policy: map[string]any{"cooldown": "1m"}}
		if _, _, err := c.Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
	}
	mustJobs(t, c, 1) // one that says nothing of scaling
	list, meta, err := c.Scaling().ListPolicies(nil)
	if err != nil || len(list) != 2 || meta.LastIndex == 0 {
		t.Fatalf("list: %+v, %v", list, err)
	}
	var shop *nomad.ScalingPolicyListStub
	for _, p := range list {
		if p.Target["Job"] == "shop" {
			shop = p
		}
	}
	want := map[string]string{"Namespace": "default", "Job": "shop", "Group": "site"}
	if shop == nil || shop.Enabled || shop.Type != "horizontal" || !maps.Equal(shop.Target, want) || shop.ModifyIndex == 0 {
		t.Fatalf("list: %+v", shop)
	}
	full, _, err := c.Scaling().GetPolicy(shop.ID, nil)
	if err != nil || full.ID != shop.ID || *full.Max != 7 || *full.Min != 2 || full.Policy["cooldown"] != "1m" || full.Namespace != "default" {
		t.Fatalf("policy: %+v, %v", full, err)
	}
	narrow := func(params map[string]string) int {
		t.Helper()
		list, _, err := c.Scaling().ListPolicies(&nomad.QueryOptions{Params: params})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := narrow(map[string]string{"job": "api"}); n != 1 {
		t.Errorf("%d policies of one job", n)
	}
	if n := narrow(map[string]string{"type": "vertical_cpu"}); n != 0 {
		t.Errorf("%d policies of a type that there is none of", n)
	}
	first, meta, err := c.Scaling().ListPolicies(&nomad.QueryOptions{PerPage: 1})
	if err != nil || len(first) != 1 || meta.NextToken == "" {
		t.Fatalf("a page: %+v, %v", first, err)
	}
	mustListTaskPolicies(t, c)
	// The id stays, and goes with its job.
	if _, _, err := c.Jobs().Scale("shop", "site", nil, "a scaler speaks", false, nil, nil); err != nil {
		t.Fatal(err)
	}
	if again, _, err := c.Scaling().GetPolicy(shop.ID, nil); err != nil || again.ID != shop.ID {
		t.Errorf("after it was scaled: %+v, %v", again, err)
	}
	if _, _, err := c.Jobs().Deregister("shop", false, nil); err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string]string{"of a stopped job": shop.ID, "that there is none of": "nope"} {
		if status, text := mustGet(t, srv.URL+"/v1/scaling/policy/"+id); status != http.StatusNotFound || !strings.Contains(text, id) {
			t.Errorf("a policy %s: %d %q", what, status, text)
		}
	}
	if status, _ := mustGet(t, srv.URL+"/v1/scaling/policies?filter=Nonsense"); status != http.StatusBadRequest {
		t.Errorf("a filter that is none: %d", status)
	}
}

// The lists of one job page and filter as those of all jobs do.
func TestListsOfAJobPage(t *testing.T) {
	h, srv, c := mustServe(t)
	for range 3 {
		if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Jobs().ForceEvaluate("web", nil); err != nil {
			t.Fatal(err)
		}
		mustPlace(t, h, "web")
	}
	all, _, err := c.Jobs().Evaluations("web", nil)
	if err != nil || len(all) < 3 {
		t.Fatalf("%d evaluations, %v", len(all), err)
	}
	var paged []string
	for token := ""; ; {
		list, meta, err := c.Jobs().Evaluations("web", &nomad.QueryOptions{PerPage: 2, NextToken: token})
		if err != nil || len(list) == 0 || len(list) > 2 {
			t.Fatalf("a page of %d, %v", len(list), err)
		}
		for _, e := range list {
			paged = append(paged, e.ID)
		}
		if token = meta.NextToken; token == "" {
			break
		}
	}
	if len(paged) != len(all) {
		t.Fatalf("%d evaluations in pages, %d at once", len(paged), len(all))
	}
	for i, e := range all {
		if paged[i] != e.ID || i > 0 && e.CreateIndex > all[i-1].CreateIndex {
			t.Errorf("evaluation %d: %s in pages, %s at once, index %d", i, paged[i], e.ID, e.CreateIndex)
		}
	}
	allocs, meta, err := c.Jobs().Allocations("web", false, &nomad.QueryOptions{PerPage: 2, Filter: `ClientStatus == "pending"`})
	if err != nil || len(allocs) != 2 || meta.NextToken == "" {
		t.Fatalf("%d allocations, %v", len(allocs), err)
	}
	if rest, _, err := c.Jobs().Allocations("web", false, &nomad.QueryOptions{Filter: `ClientStatus == "lost"`}); err != nil || len(rest) != 0 {
		t.Fatalf("%d lost allocations, %v", len(rest), err)
	}
	for _, list := range []string{"allocations", "evaluations", "deployments"} {
		base := srv.URL + "/v1/job/web/" + list
		if status, text := mustGet(t, base+"?per_page=some"); status != http.StatusBadRequest || !strings.Contains(text, "per_page") {
			t.Errorf("%s: %d %q", list, status, text)
		}
		if status, text := mustGet(t, base+"?next_token="+meta.NextToken); status != http.StatusBadRequest || !strings.Contains(text, "another query") {
			t.Errorf("%s with a token of another query: %d %q", list, status, text)
		}
	}
}

// mustListTaskPolicies has a job with scaling blocks of a task, which name it.
func mustListTaskPolicies(t *testing.T, c *nomad.Client) {
	t.Helper()
	job, most, least := exampleJob("vertical"), int64(900), int64(100)
	task := job.TaskGroups[0].Tasks[0]
	task.ScalingPolicies = []*nomad.ScalingPolicy{{Type: "vertical_cpu", Min: &least, Max: &most}, {Type: "vertical_mem", Max: &most}}
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	list, _, err := c.Scaling().ListPolicies(&nomad.QueryOptions{Params: map[string]string{"job": "vertical"}})
	if err != nil || len(list) != 2 || list[0].ID == list[1].ID {
		t.Fatalf("policies of a task: %+v, %v", list, err)
	}
	list, _, err = c.Scaling().ListPolicies(&nomad.QueryOptions{Params: map[string]string{"type": "vertical_cpu"}})
	want := map[string]string{"Namespace": "default", "Job": "vertical", "Group": "site", "Task": task.Name}
	if err != nil || len(list) != 1 || !list[0].Enabled || !maps.Equal(list[0].Target, want) {
		t.Fatalf("the cpu's: %+v, %v", list, err)
	}
	if full, _, err := c.Scaling().GetPolicy(list[0].ID, nil); err != nil || *full.Min != 100 || *full.Max != 900 {
		t.Errorf("policy: %+v, %v", full, err)
	}
}
