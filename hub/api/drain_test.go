package api_test

import (
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/state"
)

// TestDrain drives Nomad's own client through a node's drain.
func TestDrain(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	mustPlace(t, h, "web")
	id := string(nodeID)
	before := time.Now()
	res, err := c.Nodes().UpdateDrainOpts(id, &nomad.DrainOptions{
		DrainSpec: &nomad.DrainSpec{Deadline: 10 * time.Second, IgnoreSystemJobs: true}, Meta: map[string]string{"why": "rust"},
		MarkEligible: true, // as Nomad's CLI sends it with every drain
	}, nil)
	if err != nil || res.NodeModifyIndex == 0 {
		t.Fatalf("drain: %+v, %v", res, err)
	}
	n, _, err := c.Nodes().Info(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !n.Drain || n.SchedulingEligibility != "ineligible" || n.LastDrain.Status != nomad.DrainStatusDraining || n.LastDrain.Meta["why"] != "rust" {
		t.Fatalf("H1: the node is %+v, last drain %+v", n, n.LastDrain)
	}
	if s := n.DrainStrategy; !s.IgnoreSystemJobs || s.Deadline != 10*time.Second || s.ForceDeadline.Before(before.Add(10*time.Second)) {
		t.Fatalf("H1: the strategy is %+v", s)
	}
	if _, err := c.Nodes().ToggleEligibility(id, true, nil); err == nil || !strings.Contains(err.Error(), "being drained") {
		t.Fatalf("eligible while it is drained: %v", err)
	}
	list, _, err := c.Nodes().List(nil)
	if err != nil || !list[0].Drain || list[0].LastDrain == nil {
		t.Fatalf("list: %+v, %v", list[0], err)
	}
	if _, err := c.Nodes().UpdateDrain(id, nil, true, nil); err != nil {
		t.Fatal(err)
	}
	if n, _, _ = c.Nodes().Info(id, nil); n.Drain || n.DrainStrategy != nil || n.SchedulingEligibility != "eligible" || n.LastDrain.Status != nomad.DrainStatusCanceled {
		t.Fatalf("H1: after the end %+v, %+v", n, n.LastDrain)
	}
	if eval, _, err := c.Nodes().ForceEvaluate(id, nil); err != nil || eval == "" {
		t.Fatalf("evaluate: %q, %v", eval, err)
	}
}

func TestPurgeNode(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	mustPlace(t, h, "web")
	if _, _, err := c.Nodes().Purge(string(nodeID), nil); err == nil || !strings.Contains(err.Error(), "409") {
		t.Fatalf("a node with a session was purged: %v", err)
	}
	n, _ := h.store.View().Node(nodeID)
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: n.Epoch}}, EvalSeed: "s", Now: 5})
	res, _, err := c.Nodes().Purge(string(nodeID), nil)
	if err != nil || len(res.EvalIDs) != 1 {
		t.Fatalf("purge: %+v, %v", res, err)
	}
	if _, ok := h.store.View().Node(nodeID); ok {
		t.Fatal("the node is still there")
	}
	if e, _ := h.store.View().Eval(fleet.EvalID(res.EvalIDs[0])); e == nil || e.JobID != "web" {
		t.Fatalf("the evaluation is %+v", e)
	}
}

// TestDrainNamesTheToken reads, with Nomad's client, which token drained a node, and which canceled the drain.
func TestDrainNamesTheToken(t *testing.T) {
	a := newACLHub(t)
	mustApply(t, a.hub, state.NodeRegister{Node: fleet.Node{ID: nodeID, Name: "n", Datacenter: "dc1", NodePool: "default"}, Now: 1})
	management, boot := a.mustBootstrap()
	_, err := management.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "drains", Rules: `node { policy = "write" }`}, nil)
	mustSucceed(t, err)
	operator, made := a.mustMake(management, &nomad.ACLToken{Policies: []string{"drains"}})
	for _, step := range []struct {
		by       *nomad.Client
		spec     *nomad.DrainSpec
		accessor string
	}{
		{operator, &nomad.DrainSpec{Deadline: time.Hour}, made.AccessorID},
		{management, &nomad.DrainSpec{Deadline: time.Minute}, boot.AccessorID},
		{operator, nil, made.AccessorID},
	} {
		_, err := step.by.Nodes().UpdateDrain(string(nodeID), step.spec, false, nil)
		mustSucceed(t, err)
		n, _, err := operator.Nodes().Info(string(nodeID), nil)
		mustSucceed(t, err)
		if n.LastDrain == nil || n.LastDrain.AccessorID != step.accessor || (n.DrainStrategy != nil) != (step.spec != nil) {
			t.Errorf("drain %+v: the last drain is %+v, want the token %s", step.spec, n.LastDrain, step.accessor)
		}
	}
}
