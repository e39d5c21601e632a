package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api/contexts"

	"skerry/hub/api"
)

func TestSearchByPrefix(t *testing.T) {
	h, _, c := mustServe(t)
	mustJobs(t, c, 25)
	id := mustPlace(t, h, "j07")
	got, _, err := c.Search().PrefixSearch("j0", contexts.Jobs, nil)
	if err != nil || len(got.Matches) != 1 || len(got.Matches[contexts.Jobs]) != 10 || got.Truncations[contexts.Jobs] {
		t.Fatalf("jobs j0: %+v, %v", got, err)
	}
	got, _, err = c.Search().PrefixSearch("j", contexts.All, nil)
	if err != nil || len(got.Matches[contexts.Jobs]) != 20 || !got.Truncations[contexts.Jobs] || len(got.Matches[contexts.Nodes]) != 0 {
		t.Fatalf("all j: %+v, %v", got, err)
	}
	got, _, err = c.Search().PrefixSearch(string(id)[:6], contexts.All, nil)
	if err != nil || !slices.Equal(got.Matches[contexts.Allocs], []string{string(id)}) {
		t.Fatalf("an allocation: %+v, %v", got, err)
	}
	got, _, err = c.Search().PrefixSearch(string(nodeID)[:4], contexts.Nodes, nil)
	if err != nil || !slices.Equal(got.Matches[contexts.Nodes], []string{string(nodeID)}) {
		t.Fatalf("a node: %+v, %v", got, err)
	}
}

func TestSearchFuzzy(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("Web-shop"), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Jobs().Register(exampleJob("shop"), nil); err != nil {
		t.Fatal(err)
	}
	id := mustPlace(t, h, "Web-shop")
	got, _, err := c.Search().FuzzySearch("SHOP", contexts.All, nil)
	if err != nil {
		t.Fatal(err)
	}
	if jobs := got.Matches[contexts.Jobs]; len(jobs) != 2 || jobs[0].ID != "shop" || !slices.Equal(jobs[1].Scope, []string{"default", "Web-shop"}) {
		t.Errorf("jobs: %+v", jobs)
	}
	if allocs := got.Matches[contexts.Allocs]; len(allocs) != 1 || !slices.Equal(allocs[0].Scope, []string{"default", string(id)}) {
		t.Errorf("allocations: %+v", allocs)
	}
	got, _, err = c.Search().FuzzySearch("bin/tr", contexts.Commands, nil)
	if err != nil || len(got.Matches[contexts.Commands]) != 2 || !slices.Equal(got.Matches[contexts.Commands][0].Scope, []string{"default", "Web-shop", "site", "main"}) {
		t.Errorf("commands: %+v, %v", got, err)
	}
	got, _, err = c.Search().FuzzySearch("edge", contexts.Nodes, nil)
	if err != nil || len(got.Matches[contexts.Nodes]) != 1 || got.Truncations[contexts.Nodes] {
		t.Errorf("nodes: %+v, %v", got, err)
	}
	for range 101 {
		mustPlace(t, h, "shop")
	}
	got, _, err = c.Search().FuzzySearch("op.site", contexts.Allocs, nil)
	if err != nil || len(got.Matches[contexts.Allocs]) != 100 || !got.Truncations[contexts.Allocs] {
		t.Errorf("%d of 102 allocations, truncated %v, %v", len(got.Matches[contexts.Allocs]), got.Truncations, err)
	}
}

func TestBadSearches(t *testing.T) {
	h, _, _ := mustServe(t)
	a, err := api.New(api.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 600)
	for _, tc := range []struct{ path, body, says string }{
		{"/v1/search", "", "empty"},
		{"/v1/search", `{"Prefix":1}`, "body"},
		{"/v1/search", `{"Prefix":"a","Context":"cats"}`, "cats"},
		{"/v1/search", fmt.Sprintf(`{"Prefix":%q}`, long), "at most"},
		{"/v1/search/fuzzy", `{"Text":"a"}`, "too short"},
		{"/v1/search/fuzzy", fmt.Sprintf(`{"Text":%q}`, long), "at most"},
	} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader(tc.body)))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), tc.says) {
			t.Errorf("%s %.40s: %d %s, want 400 with %q", tc.path, tc.body, w.Code, w.Body, tc.says)
		}
	}
}
