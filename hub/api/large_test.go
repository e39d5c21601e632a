package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"slices"
	"testing"

	nomad "github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/api/contexts"

	"skerry/client"
	"skerry/fleet"
	"skerry/hub/state"
)

// largeFleet is a hub with a job of many allocations on one node, beside many other nodes and evaluations.
type largeFleet struct {
	testing.TB
	hub           *fakeHub
	srv           *httptest.Server
	client        *client.Client
	nomad         *nomad.Client
	allocs, nodes int
	evals         int
	ids           []string // of the allocations
	placed        fleet.Index
}

const largeDeployment = "5a5b5c5d-0000-4000-8000-000000000001"

func newLargeFleet(t *testing.T, allocs, nodes int) *largeFleet {
	h, srv, c := mustServe(t)
	typed, err := client.New(client.Config{Addr: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	f := &largeFleet{TB: t, hub: h, srv: srv, client: typed, nomad: c, allocs: allocs, nodes: nodes}
	large := exampleJob("shop")
	large.TaskGroups[0].Count = &allocs
	if _, _, err := c.Jobs().Register(large, nil); err != nil {
		t.Fatal(err)
	}
	for i := range nodes - 1 { // mustServe made one
		id := fleet.DeriveUUID("node", fmt.Sprint(i))
		mustApply(t, h, state.NodeRegister{Node: fleet.Node{ID: fleet.NodeID(id), Name: fmt.Sprint("edge-", i), Datacenter: "dc1", NodePool: "default"}, Now: 1})
	}
	evals := make([]fleet.Evaluation, allocs)
	for i := range evals {
		evals[i] = fleet.Evaluation{
			ID: fleet.EvalID(fleet.DeriveUUID("eval", fmt.Sprint(i))), Namespace: "default", JobID: fleet.JobID(fmt.Sprint("job-", i/50)), Type: fleet.JobTypeService,
			Priority: 50, TriggeredBy: fleet.TriggerJobRegister, Status: fleet.EvalComplete,
		}
	}
	for some := range slices.Chunk(evals, 500) {
		mustApply(t, h, state.Evals{Evals: some, Now: 1})
	}
	f.placeAllocs()
	for range h.store.View().Evals("default", "") {
		f.evals++ // with those of the registration
	}
	return f
}

// placeAllocs places the job's allocations with one entry, and begins its deployment.
func (f *largeFleet) placeAllocs() {
	job, _ := f.hub.store.View().Job("default", "shop")
	placed := make([]fleet.Alloc, f.allocs)
	for i := range placed {
		id := fleet.DeriveUUID("alloc", fmt.Sprint(i))
		f.ids = append(f.ids, id)
		placed[i] = fleet.Alloc{
			ID: fleet.AllocID(id), Namespace: "default", Name: fmt.Sprintf("shop.site[%d]", i), NodeID: nodeID, NodeName: "edge1", JobID: "shop",
			JobVersion: job.Version, JobHash: job.SpecHash, TaskGroup: "site", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientPending,
			DeploymentID: largeDeployment, DeploymentStatus: &fleet.AllocDeployment{}, AllocatedResources: fleet.Resources{CPU: 1, MemoryMB: 1},
		}
	}
	f.placed = mustApply(f, f.hub, state.Plan{
		Now: 3, Jobs: []*fleet.Job{job}, Result: fleet.PlanResult{NodeAllocation: map[fleet.NodeID][]fleet.Alloc{nodeID: placed}},
		NewDeployment: &fleet.Deployment{
			ID: largeDeployment, Namespace: "default", JobID: "shop", JobCreateIndex: job.CreateIndex, JobVersion: job.Version,
			Status: fleet.DeploymentRunning, TaskGroups: map[string]fleet.DeploymentState{"site": {DesiredTotal: f.allocs}},
		},
	}).Index
}

// wantCount fails the test unless a list has so many items.
func wantCount[T any](tb testing.TB, what string, list []T, err error, want int) {
	tb.Helper()
	if err != nil || len(list) != want {
		tb.Errorf("%s: %d items, want %d: %v", what, len(list), want, err)
	}
}

// A fleet of 50,000 allocations on one node, 5,000 nodes and 50,000 evaluations passes through the API, whole and in
// pages, to Skerry's client and to Nomad's; a tenth of that with -short.
func TestLargeFleetThroughTheAPI(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // half of the time is the collector's
	allocs, nodes := 50_000, 5_000
	if testing.Short() { // the race detector makes it ten times as slow
		allocs, nodes = allocs/10, nodes/10
	}
	f := newLargeFleet(t, allocs, nodes)
	for _, step := range []struct {
		name string
		try  func(*testing.T)
	}{
		{"events", f.tryEvents}, {"whole lists", f.tryWholeLists}, {"pages", f.tryPages}, {"search", f.trySearch},
		{"pieces", f.tryPieces}, {"a change of all", f.tryChangeOfAll},
	} {
		t.Run(step.name, step.try)
	}
}

// tryEvents reads the events of the entry that placed all allocations.
func (f *largeFleet) tryEvents(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := f.nomad.EventStream().Stream(ctx, map[nomad.Topic][]string{nomad.TopicAllocation: {"shop"}}, uint64(f.placed), nil)
	if err != nil {
		t.Fatal(err)
	}
	if batch := <-stream; batch.Err != nil || len(batch.Events) != f.allocs {
		t.Errorf("%d events, want %d: %v", len(batch.Events), f.allocs, batch.Err)
	}
}

// tryWholeLists reads lists without pages, also from a hub that knows no leader.
func (f *largeFleet) tryWholeLists(t *testing.T) {
	all, err := f.client.Allocs(t.Context(), client.List{})
	wantCount(t, "allocations", all, err, f.allocs)
	all, err = f.client.Allocs(t.Context(), client.List{Filter: `Name == "shop.site[7]"`})
	wantCount(t, "filtered allocations", all, err, 1)
	evals, err := f.client.Evals(t.Context(), client.List{})
	wantCount(t, "evaluations", evals, err, f.evals)
	nodes, err := f.client.Nodes(t.Context(), client.List{})
	wantCount(t, "nodes", nodes, err, f.nodes)

	f.hub.leader = ""
	defer func() { f.hub.leader = "hub1" }()
	stale := &nomad.QueryOptions{AllowStale: true}
	list, _, err := f.nomad.Jobs().Allocations("shop", true, stale)
	wantCount(t, "stale allocations of the job", list, err, f.allocs)
	read, _, err := f.nomad.Nodes().List(stale)
	wantCount(t, "stale nodes", read, err, f.nodes)
}

// tryPages walks lists page by page: each item is there once.
func (f *largeFleet) tryPages(t *testing.T) {
	opts := nomad.QueryOptions{PerPage: int32(f.allocs / 5)}
	type anyItem struct{ ID string }
	for path, want := range map[string]int{"/v1/allocations?reverse=true": f.allocs, "/v1/evaluations": f.evals} {
		items, pages := mustWalk(t, opts, rawList[anyItem](f.nomad, path))
		once := map[anyItem]bool{}
		for _, it := range items {
			once[it] = true
		}
		if len(items) != want || len(once) != want || pages > 6 {
			t.Errorf("%s: %d items in %d pages, %d of them different, want %d", path, len(items), pages, len(once), want)
		}
	}
	opts.PerPage = int32(f.nodes / 10)
	nodes, pages := mustWalk(t, opts, rawList[*nomad.NodeListStub](f.nomad, "/v1/nodes"))
	if len(nodes) != f.nodes || pages != 10 {
		t.Errorf("%d nodes in %d pages, want %d in 10", len(nodes), pages, f.nodes)
	}
	whole, _, err := f.nomad.Nodes().Allocations(string(nodeID), &nomad.QueryOptions{PerPage: 1000})
	wantCount(t, "a page of whole allocations", whole, err, 1000)
}

// trySearch finds what all allocations, or all nodes, have in common: the answer is cut off and says so.
func (f *largeFleet) trySearch(t *testing.T) {
	prefix, _, err := f.nomad.Search().PrefixSearch("", contexts.Allocs, nil)
	if err != nil || len(prefix.Matches[contexts.Allocs]) != 20 || !prefix.Truncations[contexts.Allocs] {
		t.Errorf("by prefix: %d allocations, %v", len(prefix.Matches[contexts.Allocs]), err)
	}
	fuzzy, _, err := f.nomad.Search().FuzzySearch("shop.site", contexts.Allocs, nil)
	if err != nil || len(fuzzy.Matches[contexts.Allocs]) != 100 || !fuzzy.Truncations[contexts.Allocs] {
		t.Fatalf("by name: %d allocations, %v", len(fuzzy.Matches[contexts.Allocs]), err)
	}
	for i, m := range fuzzy.Matches[contexts.Allocs] { // the shortest names are the best ones
		want := fmt.Sprintf("shop.site[%d]", i)
		if m.ID != want {
			t.Errorf("match %d is %s, want %s", i, m.ID, want)
		}
	}
}

// pieceRecorder is an answer that is not kept.
type pieceRecorder struct {
	header         http.Header
	bytes, largest int
}

func (p *pieceRecorder) Header() http.Header { return p.header }
func (p *pieceRecorder) WriteHeader(int)     {}
func (p *pieceRecorder) Write(b []byte) (int, error) {
	p.bytes, p.largest = p.bytes+len(b), max(p.largest, len(b))
	return len(b), nil
}

// tryPieces checks that the text of a list is written in pieces: a hub never has all of it.
func (f *largeFleet) tryPieces(t *testing.T) {
	for _, path := range []string{"/v1/allocations", "/v1/evaluations?pretty", "/v1/nodes"} {
		sent := pieceRecorder{header: http.Header{}}
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "127.0.0.1:4646"
		f.srv.Config.Handler.ServeHTTP(&sent, r)
		if sent.largest > 128<<10 || sent.bytes < 200*f.nodes {
			t.Errorf("%s: one write of %d bytes has %d, want pieces of 64 KiB", path, sent.bytes, sent.largest)
		}
	}
}

// tryChangeOfAll names all allocations in one request, whose command is encoded as on its way to a leader.
func (f *largeFleet) tryChangeOfAll(t *testing.T) {
	f.hub.encodes = true
	if _, _, err := f.nomad.Deployments().SetAllocHealth(largeDeployment, f.ids, nil, nil); err != nil {
		t.Fatal(err)
	}
	d, _ := f.hub.store.View().Deployment(largeDeployment)
	if got := d.TaskGroups["site"].HealthyAllocs; got != f.allocs {
		t.Errorf("%d allocations are healthy, want %d", got, f.allocs)
	}
}
