package api_test

import (
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/state"
)

// TestNodePools drives pools with Nomad's client.
func TestNodePools(t *testing.T) {
	h, srv, c := mustServe(t)
	if _, err := c.NodePools().Register(&nomad.NodePool{Name: "ships", Description: "at sea"}, nil); err != nil {
		t.Fatal(err)
	}
	p, _, err := c.NodePools().Info("ships", nil)
	if err != nil || p.Description != "at sea" || p.CreateIndex == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if some, _, err := c.NodePools().PrefixList("sh", nil); err != nil || len(some) != 1 {
		t.Errorf("by prefix: %+v, %v", some, err)
	}
	mustApply(t, h, state.NodeRegister{Node: fleet.Node{ID: "22222222-1111-4111-8111-111111111111", Name: "ship1", NodePool: "ships"}, Now: 1})
	boat := exampleJob("boat")
	boat.NodePool = &p.Name
	for _, j := range []*nomad.Job{boat, exampleJob("web")} {
		if _, _, err := c.Jobs().Register(j, nil); err != nil {
			t.Fatal(err)
		}
	}
	if nodes, _, err := c.NodePools().ListNodes("ships", nil); err != nil || len(nodes) != 1 || nodes[0].Name != "ship1" {
		t.Errorf("nodes: %+v, %v", nodes, err)
	}
	all, meta, err := c.NodePools().ListNodes("all", &nomad.QueryOptions{PerPage: 1})
	if err != nil || len(all) != 1 || meta.NextToken == "" {
		t.Errorf("all nodes, the first page: %+v, %v", all, err)
	}
	if jobs, _, err := c.NodePools().ListJobs("ships", nil); err != nil || len(jobs) != 1 || jobs[0].ID != "boat" {
		t.Errorf("jobs: %+v, %v", jobs, err)
	}
	_, err = c.NodePools().Delete("ships", nil)
	fails(t, "delete a pool in use", err, "409", "node ship1 (initializing), job boat (pending)")
	_, err = c.NodePools().Delete("default", nil)
	fails(t, "delete the default", err, "400", "always exists")
	_, err = c.NodePools().Delete("farms", nil)
	fails(t, "delete one that is not there", err, "404")
	_, _, err = c.NodePools().ListJobs("farms", nil)
	fails(t, "jobs of one that is not there", err, "404")
	if _, err := c.NodePools().Register(&nomad.NodePool{Name: "farms"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NodePools().Delete("farms", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.NodePools().Info("farms", nil); err == nil {
		t.Error("a deleted pool is there")
	}
	if status, said := mustAnswer(t, "GET", srv.URL+"/v1/node/x/nonsense", ""); status != 404 || !strings.Contains(said, "no such endpoint") {
		t.Errorf("%d %s", status, said)
	}
}
