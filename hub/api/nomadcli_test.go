package api_test

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/api"
	"skerry/hub/state"
	"skerry/syncproto"
)

// TestNomadsTail is what Nomad's alloc fs -tail asks for: an offset that it counts back from
// the end, which may lie before the beginning, and a limit of -1.
func TestNomadsTail(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	id := mustPlace(t, h, "web")
	var asked syncproto.Request
	h.files = func(req syncproto.Request) (io.ReadCloser, error) {
		asked = req
		return io.NopCloser(strings.NewReader("tail")), nil
	}
	body, err := c.AllocFS().ReadAt(&nomad.Allocation{ID: string(id), NodeID: string(nodeID)}, "alloc/x", -5, -1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if b, _ := io.ReadAll(body); string(b) != "tail" || asked.Offset != 0 || asked.Limit != 0 {
		t.Errorf("read %q, the edge was asked for %+v", b, asked)
	}
}

// TestNomadsCLIKnowsAConflict by how it begins: Nomad's CLI looks for these words.
func TestNomadsCLIKnowsAConflict(t *testing.T) {
	_, _, c := mustServe(t)
	job := exampleJob("web")
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	for _, index := range []uint64{0, 999} {
		if _, _, err := c.Jobs().EnforceRegister(job, index, nil); err == nil || !strings.Contains(err.Error(), "("+nomad.RegisterEnforceIndexErrPrefix) {
			t.Errorf("enforcing index %d: %v", index, err)
		}
	}
}

func TestNomadsClientParsesAPartOfAJob(t *testing.T) {
	_, _, c := mustServe(t)
	for _, canonical := range []bool{false, true} {
		job, err := c.Jobs().ParseHCL(`job "part" { type = "batch" }`, canonical)
		if err != nil {
			t.Fatal(err)
		}
		if got := *job.Namespace; got != map[bool]string{true: "default"}[canonical] {
			t.Errorf("canonicalize %t: the namespace is %q", canonical, got)
		}
	}
}

// TestNomadsClientStoresAPoolByItsName is PUT /v1/node/pool/NAME, which Nomad serves beside
// PUT /v1/node/pools.
func TestNomadsClientStoresAPoolByItsName(t *testing.T) {
	_, srv, c := mustServe(t)
	if said := putBody(t, srv.URL+"/v1/node/pool/farms", map[string]any{"Description": "windy"}); !strings.HasPrefix(said, "200") {
		t.Fatal(said)
	}
	if p, _, err := c.NodePools().Info("farms", nil); err != nil || p.Description != "windy" {
		t.Errorf("%+v, %v", p, err)
	}
	if said := putBody(t, srv.URL+"/v1/node/pool/farms", map[string]any{"Name": "other"}); !strings.HasPrefix(said, "400") {
		t.Error(said)
	}
}

// TestAgentsHealthHasTheEdgeInItsProcess asks a hub that runs with an edge, as skerry dev does.
func TestAgentsHealthHasTheEdgeInItsProcess(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	var wrong error
	a, err := api.New(api.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, EdgeHealth: func() error { return wrong }})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		query, leader string
		wrong         error
		status        int
		want          string
	}{
		{"", "hub1", nil, 200, `{"client":{"ok":true,"message":"ok"},"server":{"ok":true,"message":"ok"}}`},
		{"", "hub1", errors.New("away"), 500, `{"client":{"ok":false,"message":"away"},"server":{"ok":true,"message":"ok"}}`},
		{"?type=server", "hub1", errors.New("away"), 200, `{"server":{"ok":true,"message":"ok"}}`},
		{"?type=client", "", nil, 200, `{"client":{"ok":true,"message":"ok"}}`},
		{"?type=client&type=server", "", nil, 500, `{"client":{"ok":true,"message":"ok"},"server":{"ok":false,"message":"no cluster leader"}}`},
	} {
		wrong, h.leader = tc.wrong, fleet.HubID(tc.leader)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("GET", "/v1/agent/health"+tc.query, nil))
		if got := strings.TrimSpace(w.Body.String()); w.Code != tc.status || got != tc.want {
			t.Errorf("%+v: %d %s", tc, w.Code, got)
		}
	}
}

func TestAgentsHealthByKind(t *testing.T) {
	_, srv, c := mustServe(t)
	if h, err := c.Agent().Health(); err != nil || h.Server == nil || !h.Server.Ok || h.Client != nil {
		t.Errorf("%+v, %v", h, err)
	}
	if said, _ := mustGet(t, srv.URL+"/v1/agent/health?type=client"); said != 500 {
		t.Errorf("a hub as a client: %d", said)
	}
	if said, text := mustGet(t, srv.URL+"/v1/agent/health?type=both"); said != 400 || !strings.Contains(text, "neither client nor server") {
		t.Errorf("a kind that there is none of: %d %s", said, text)
	}
	if said, _ := mustGet(t, srv.URL+"/v1/event/stream?topic=nonsense"); said != 400 {
		t.Errorf("a topic that there is none of: %d", said)
	}
	if host, err := c.Agent().Host("", "", nil); err != nil || host.HostData.OS == "" || host.HostData.Environment != nil {
		t.Errorf("%+v, %v", host, err)
	}
	if m, _, err := c.Operator().MetricsSummary(nil); err != nil || m.Timestamp == "" {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestEmptyListsHaveAnIndex reads empty lists: their index is not 0, so that a client that blocks
// on index 0 does not wait.
func TestEmptyListsHaveAnIndex(t *testing.T) {
	_, srv, c := mustServe(t)
	for _, path := range []string{
		"jobs", "jobs/statuses", "allocations", "evaluations", "deployments", "services", "scaling/policies", "join/tokens", "node/revocations", "fleet/held",
		"node/pool/default/jobs", "node/" + string(nodeID) + "/allocations",
	} {
		var list []any
		meta, err := c.Raw().Query("/v1/"+path, &list, nil)
		if err != nil || list == nil || len(list) != 0 || meta.LastIndex == 0 {
			t.Errorf("%s: %v at %d, %v", path, list, meta.LastIndex, err)
		}
		if _, text := mustGet(t, srv.URL+"/v1/"+path); text != "[]\n" {
			t.Errorf("%s: %q", path, text)
		}
	}
}
