package planner_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"skerry/fleet"
	"skerry/hub/state"
)

// claimed are ports, cores and devices that only one allocation of a node can have.
var claimed = map[string]struct {
	given *fleet.AssignedResources
	want  string
}{
	"port":   {&fleet.AssignedResources{Ports: []fleet.AssignedPort{{Label: "http", Value: 8080}}}, "port 8080 (http) is taken"},
	"core":   {&fleet.AssignedResources{Tasks: map[string]fleet.AssignedTaskResources{"t": {Cores: []int{1}}}}, "core 1 is taken"},
	"device": {&fleet.AssignedResources{Tasks: map[string]fleet.AssignedTaskResources{"t": {Devices: []fleet.AssignedDevice{{DeviceIDs: []string{"g"}}}}}}, "device g is taken"},
}

// Ports, cores, devices and the number of allocations of plans that are being committed
// are taken: the state does not show them yet.
func TestClaimsOfPlansInFlightCount(t *testing.T) {
	race := func(t *testing.T, node func(*cluster) fleet.NodeID, given *fleet.AssignedResources, want string) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			n, a, b := node(c), c.mustRegisterJob("a"), c.mustRegisterJob("b")
			hold := make(chan struct{})
			c.gate = func(state.Plan) error { <-hold; return nil }
			stop := c.startPlanner()
			defer stop()
			results := make(chan fleet.PlanResult, 2)
			for _, j := range []*fleet.Job{a, b} {
				alloc := c.newPendingAlloc(j, n, 10)
				alloc.Allotment = given
				p := c.planOfPlacements(j, alloc)
				go func() { results <- c.mustSubmitPlan(p) }()
				synctest.Wait()
			}
			if res := <-results; !strings.Contains(res.Rejected[n], want) {
				t.Errorf("the second plan, while the first is being committed: %+v, want %q", res, want)
			}
			close(hold)
			if res := <-results; !res.Full() {
				t.Errorf("the first plan: %+v", res)
			}
		})
	}
	for name, tc := range claimed {
		t.Run(name, func(t *testing.T) {
			race(t, func(c *cluster) fleet.NodeID { return c.addReadyNode("n1", 1000) }, tc.given, tc.want)
		})
	}
	t.Run("number of allocations", func(t *testing.T) {
		race(t, func(c *cluster) fleet.NodeID {
			id := nodeID("n1")
			c.mustApplyEntry(state.SessionOpen{NodeID: id, Session: 1, Now: 1, Node: &fleet.Node{
				ID: id, Name: "n1", MaxAllocs: 1, Resources: fleet.Resources{CPU: 1000, MemoryMB: 1000},
			}})
			return id
		}, nil, "the node takes 1 allocations")
	})
}

// E46: workers that raced may have given out the same port, core or device: the second
// plan is refused for that node, and what the first took is told.
func TestClaimsAreCheckedAgainstTheNewestState(t *testing.T) {
	for name, tc := range claimed {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			n, j := c.addReadyNode("n1", 1000), c.mustRegisterJob("shop")
			c.startPlanner()
			first, second := c.newPendingAlloc(j, n, 10), c.newPendingAlloc(j, n, 10)
			first.Allotment, second.Allotment = tc.given, tc.given
			both := c.planOfPlacements(j, first, second)
			if res := c.mustSubmitPlan(both); !strings.Contains(res.Rejected[n], tc.want) || c.allocExists(first) {
				t.Fatalf("both in one plan: %+v", res)
			}
			if res := c.mustSubmitPlan(c.planOfPlacements(j, first)); !res.Full() {
				t.Fatalf("the first: %+v", res)
			}
			if a, _ := c.View().Alloc(first.ID); a.Allotment == nil {
				t.Fatal("what it was given is not kept")
			}
			if res := c.mustSubmitPlan(c.planOfPlacements(j, second)); !strings.Contains(res.Rejected[n], tc.want) {
				t.Fatalf("the second: %+v", res)
			}
		})
	}
}
