package api_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/api"
	"skerry/fleet/validate"
	hubapi "skerry/hub/api"
)

// mustJobs registers n jobs, j00, j01 …, of which each third is of team b.
func mustJobs(tb testing.TB, c *nomad.Client, n int) {
	tb.Helper()
	for i := range n {
		job := exampleJob(fmt.Sprintf("j%02d", i)).SetMeta("team", []string{"b", "a", "a"}[i%3])
		if _, _, err := c.Jobs().Register(job, nil); err != nil {
			tb.Fatal(err)
		}
	}
}

// mustWalk reads a list page by page with the published client's options.
func mustWalk[T any](tb testing.TB, opts nomad.QueryOptions, list func(*nomad.QueryOptions) ([]T, *nomad.QueryMeta, error)) (all []T, pages int) {
	tb.Helper()
	for {
		got, meta, err := list(&opts)
		if err != nil {
			tb.Fatal(err)
		}
		if opts.PerPage > 0 && len(got) > int(opts.PerPage) {
			tb.Fatalf("a page has %d items, %d were asked for", len(got), opts.PerPage)
		}
		all = append(all, got...)
		pages++
		if meta.NextToken == "" {
			return all, pages
		}
		if pages > 100 {
			tb.Fatal("the pages do not end")
		}
		opts.NextToken = meta.NextToken
	}
}

// rawList reads a list as the hub orders it: the client's own List sorts.
func rawList[T any](c *nomad.Client, path string) func(*nomad.QueryOptions) ([]T, *nomad.QueryMeta, error) {
	return func(q *nomad.QueryOptions) ([]T, *nomad.QueryMeta, error) {
		var out []T
		meta, err := c.Raw().Query(path, &out, q)
		return out, meta, err
	}
}

func jobIDs(stubs []*nomad.JobListStub) []string {
	var ids []string
	for _, s := range stubs {
		ids = append(ids, s.ID)
	}
	return ids
}

// The pages of lists in any order are the parts of the whole list in its order, and a page keeps few entries, however long
// the list is.
func TestPagesArePartsOfTheList(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		perPage, reverse := draw.IntN(8), draw.IntN(2) == 0
		keys := make([]string, draw.IntN(200))
		for i, n := range draw.Perm(len(keys)) {
			keys[i] = fmt.Sprintf("%03d", n)
		}
		var got []string
		from, pages := "", 0
		for {
			page, next, kept := hubapi.PageOfKeys(keys, perPage, from, reverse)
			got = append(got, page...)
			if perPage > 0 && (kept > 8*perPage+8 || len(page) > perPage || next != "" && len(page) < perPage) {
				t.Fatalf("%d of %d keys on a page of %d, %d entries kept", len(page), len(keys), perPage, kept)
			}
			if pages++; next == "" {
				break
			}
			from = next
		}
		want := slices.Sorted(slices.Values(keys))
		if reverse {
			slices.Reverse(want)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("pages of %d, reverse %t: %v, want %v", perPage, reverse, got, want)
		}
	}
}

func TestListsPageFilterAndTurn(t *testing.T) {
	_, _, c := mustServe(t)
	mustJobs(t, c, 10)
	all, pages := mustWalk(t, nomad.QueryOptions{PerPage: 4}, c.Jobs().List)
	if ids := jobIDs(all); pages != 3 || len(ids) != 10 || !slices.IsSorted(ids) {
		t.Fatalf("jobs in %d pages: %v", pages, ids)
	}
	turned, _ := mustWalk(t, nomad.QueryOptions{PerPage: 3, Reverse: true}, rawList[*nomad.JobListStub](c, "/v1/jobs"))
	slices.Reverse(turned)
	if !slices.Equal(jobIDs(turned), jobIDs(all)) {
		t.Fatalf("the other way round: %v", jobIDs(turned))
	}
	some, pages := mustWalk(t, nomad.QueryOptions{PerPage: 2, Filter: `Meta.team == "b" and ID != "j03"`}, c.Jobs().List)
	if ids := jobIDs(some); pages != 2 || !slices.Equal(ids, []string{"j00", "j06", "j09"}) {
		t.Fatalf("filtered in %d pages: %v", pages, ids)
	}
	exact, pages := mustWalk(t, nomad.QueryOptions{PerPage: 5}, c.Jobs().List)
	if pages != 2 || len(exact) != 10 {
		t.Fatalf("10 items in pages of 5: %d pages, %d items", pages, len(exact))
	}
	prefixed, _ := mustWalk(t, nomad.QueryOptions{Prefix: "j0", PerPage: 7}, c.Jobs().List)
	if len(prefixed) != 10 {
		t.Fatalf("by prefix: %v", jobIDs(prefixed))
	}
	missing, _ := mustWalk(t, nomad.QueryOptions{Filter: `Meta.nobody == "x"`}, c.Jobs().List)
	if len(missing) != 0 {
		t.Fatalf("a key that no job has: %v", jobIDs(missing))
	}
}

func TestEvaluationsPageByAgeAndAreCounted(t *testing.T) {
	h, _, c := mustServe(t)
	mustJobs(t, c, 7)
	evals, pages := mustWalk(t, nomad.QueryOptions{PerPage: 3}, rawList[*nomad.Evaluation](c, "/v1/evaluations"))
	if pages != 3 || len(evals) != 7 {
		t.Fatalf("%d evaluations in %d pages", len(evals), pages)
	}
	for i, e := range evals {
		if e.JobID != fmt.Sprintf("j%02d", i) {
			t.Fatalf("evaluation %d is of job %s: the oldest comes first", i, e.JobID)
		}
	}
	count, _, err := c.Evaluations().Count(&nomad.QueryOptions{Filter: `JobID matches "j0[1-3]" and Status == "pending"`})
	if err != nil || count.Count != 3 {
		t.Fatalf("count = %+v, %v", count, err)
	}
	id := mustPlace(t, h, "j01")
	for range 4 {
		mustPlace(t, h, "j02")
	}
	allocs, pages := mustWalk(t, nomad.QueryOptions{PerPage: 2, Reverse: true}, rawList[*nomad.AllocationListStub](c, "/v1/allocations"))
	if pages != 3 || len(allocs) != 5 || allocs[4].ID != string(id) {
		t.Fatalf("%d allocations in %d pages", len(allocs), pages)
	}
	one, _, err := c.Allocations().List(&nomad.QueryOptions{Filter: `JobID == "j01"`, Prefix: string(id)[:8]})
	if err != nil || len(one) != 1 || one[0].ID != string(id) {
		t.Fatalf("filtered allocations: %+v, %v", one, err)
	}
	nodes, _, err := c.Nodes().List(&nomad.QueryOptions{Filter: `Datacenter == "dc1" and Drivers.raw_exec.Healthy == true`, PerPage: 1})
	if err != nil || len(nodes) != 1 {
		t.Fatalf("filtered nodes: %+v, %v", nodes, err)
	}
}

// TestPagesWhileTheListChanges has jobs come and go between two pages: none that
// stayed is missed or shown twice.
func TestPagesWhileTheListChanges(t *testing.T) {
	_, _, c := mustServe(t)
	mustJobs(t, c, 8)
	first, meta, err := c.Jobs().List(&nomad.QueryOptions{PerPage: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"j02", "j04"} { // j04 is where the next page begins
		if _, _, err := c.Jobs().Deregister(gone, true, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := c.Jobs().Register(exampleJob("j03-new"), nil); err != nil {
		t.Fatal(err)
	}
	rest, _ := mustWalk(t, nomad.QueryOptions{PerPage: 4, NextToken: meta.NextToken}, c.Jobs().List)
	if got := append(jobIDs(first), jobIDs(rest)...); !slices.Equal(got, []string{"j00", "j01", "j02", "j03", "j05", "j06", "j07"}) {
		t.Fatalf("pages over a list that changed: %v", got)
	}
}

func TestJobStatuses(t *testing.T) {
	h, _, c := mustServe(t)
	mustJobs(t, c, 3)
	id := mustPlace(t, h, "j01")
	var got []api.JobStatus
	if _, err := c.Raw().Query("/v1/jobs/statuses?per_page=2", &got, nil); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].ID != "j01" || got[0].GroupCountSum != 2 || len(got[0].Allocs) != 1 || got[0].Allocs[0].ID != id {
		t.Fatalf("statuses = %+v", got)
	}
	got = nil
	named := nomad.JobStatusesRequest{Jobs: []nomad.NamespacedID{{ID: "j02", Namespace: "default"}, {ID: "nope", Namespace: "default"}}}
	if _, err := c.Raw().Write("/v1/jobs/statuses", named, &got, nil); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].ID != "j02" {
		t.Fatalf("statuses of one job = %+v", got)
	}
	// A job that is named twice is listed once; otherwise its page would never end.
	named.Jobs, got = []nomad.NamespacedID{{ID: "j02"}, {ID: "j02", Namespace: "default"}, {ID: "j00"}}, nil
	meta, err := c.Raw().Write("/v1/jobs/statuses?per_page=2", named, &got, nil)
	if err != nil || len(got) != 2 || got[0].ID != "j02" || got[1].ID != "j00" {
		t.Fatalf("statuses of jobs of which one is named twice = %+v, %+v, %v", got, meta, err)
	}
}

func TestListsBlock(t *testing.T) {
	h, _, c := mustServe(t)
	mustJobs(t, c, 2)
	_, meta, err := c.Evaluations().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan int, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		opts := &nomad.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 15 * time.Second, Filter: `JobID == "late"`, PerPage: 5}
		evals, _, err := c.Evaluations().List(opts.WithContext(ctx))
		if err != nil {
			t.Error(err)
		}
		got <- len(evals)
	}()
	if _, _, err := c.Jobs().Register(exampleJob("late"), nil); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n != 1 {
		t.Fatalf("a list that blocked has %d evaluations, at index %d", n, h.store.View().Index())
	}
}

func TestBadPagesAndFilters(t *testing.T) {
	_, srv, c := mustServe(t)
	mustJobs(t, c, 3)
	_, meta, err := c.Jobs().List(&nomad.QueryOptions{PerPage: 1})
	if err != nil {
		t.Fatal(err)
	}
	token := meta.NextToken
	for _, tc := range []struct{ name, path, says string }{
		{"per_page is no number", "/v1/jobs?per_page=many", "per_page"},
		{"per_page is negative", "/v1/jobs?per_page=-1", "per_page"},
		{"reverse is no boolean", "/v1/nodes?reverse=perhaps", "reverse"},
		{"a token that is none", "/v1/jobs?next_token=j01", "next_token"},
		{"a token of another list", "/v1/evaluations?next_token=" + token, "another query"},
		{"a token of another filter", "/v1/jobs?filter=" + url.QueryEscape(`ID == "x"`) + "&next_token=" + token, "another query"},
		{"a token of another order", "/v1/jobs?reverse=true&next_token=" + token, "another query"},
		{"a token of another prefix", "/v1/jobs?prefix=j&next_token=" + token, "another query"},
		{"a token of another namespace", "/v1/jobs?namespace=*&next_token=" + token, "another query"},
		{"a huge token", "/v1/jobs?next_token=" + strings.Repeat("A", 4000), "longer"},
		{"a filter that does not parse", "/v1/jobs?filter=" + url.QueryEscape(`ID = = "x"`), "1:4"},
		{"a filter that ends early", "/v1/evaluations/count?filter=" + url.QueryEscape(`Status == `), "1:"},
		{"a filter on what is not there", "/v1/jobs?filter=" + url.QueryEscape(`Colour == "red"`), "Colour"},
		{"a filter of another kind", "/v1/jobs?filter=" + url.QueryEscape(`Priority == "high"`), "Priority"},
		{"a long filter", "/v1/allocations?filter=" + url.QueryEscape(strings.Repeat(`(`, hubapi.MaxFilter+1)), "at most"},
		{"a deep filter", "/v1/allocations?filter=" + url.QueryEscape(strings.Repeat(`(`, 4000)), "filter"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, err := http.Get(srv.URL + tc.path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), tc.says) {
				t.Errorf("answered %d %q, want 400 with %q", resp.StatusCode, b, tc.says)
			}
		})
	}
}

// FuzzLists feeds filters and tokens to the lists.
func FuzzLists(f *testing.F) {
	f.Add(`Meta.team == "b"`, "AQ")
	f.Add(`TaskGroups.0.Tasks.0.Config.command is not empty`, "")
	f.Add(`"x" in Datacenters and not (Priority > 4)`, "j")
	f.Add(`any TaskGroups as g { g.Name == "site" }`, "")
	h, _, c := mustServe(f)
	mustJobs(f, c, 3)
	mustPlace(f, h, "j01")
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, Drivers: validate.KnownDrivers{Names: []string{"raw_exec"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, filter, token string) {
		for _, list := range []string{"jobs", "allocations", "nodes", "evaluations", "evaluations/count", "jobs/statuses"} {
			q := url.Values{"filter": {filter}, "next_token": {token}, "per_page": {"2"}}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/"+list+"?"+q.Encode(), nil))
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
				t.Errorf("%s with %q and %q answered %d %s", list, filter, token, w.Code, w.Body)
			}
		}
	})
}
