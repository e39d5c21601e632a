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
	given *fleet.Allotment
	want  string
}{
	"port":   {&fleet.Allotment{Ports: []fleet.AllottedPort{{Label: "http", Value: 8080}}}, "port 8080 (http) is taken"},
	"core":   {&fleet.Allotment{Tasks: map[string]fleet.TaskAllotment{"t": {Cores: []int{1}}}}, "core 1 is taken"},
	"device": {&fleet.Allotment{Tasks: map[string]fleet.TaskAllotment{"t": {Devices: []fleet.AllottedDevice{{DeviceIDs: []string{"g"}}}}}}, "device g is taken"},
}

// Ports, cores, devices and the number of allocations of plans that are being committed
// are taken: the state does not show them yet.
func TestClaimsOfPlansInFlightCount(t *testing.T) {
	race := func(t *testing.T, node func(*cluster) fleet.NodeID, given *fleet.Allotment, want string) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			n, a, b := node(c), c.job("a"), c.job("b")
			hold := make(chan struct{})
			c.gate = func(state.Plan) error { <-hold; return nil }
			stop := c.lead()
			defer stop()
			results := make(chan fleet.PlanResult, 2)
			for _, j := range []*fleet.Job{a, b} {
				alloc := c.alloc(j, n, 10)
				alloc.Allotment = given
				p := c.placing(j, alloc)
				go func() { results <- c.submit(p) }()
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
			race(t, func(c *cluster) fleet.NodeID { return c.node("n1", 1000) }, tc.given, tc.want)
		})
	}
	t.Run("number of allocations", func(t *testing.T) {
		race(t, func(c *cluster) fleet.NodeID {
			id := nodeID("n1")
			c.must(state.SessionOpen{NodeID: id, Session: 1, Now: 1, Node: &fleet.Node{
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
			n, j := c.node("n1", 1000), c.job("shop")
			c.lead()
			first, second := c.alloc(j, n, 10), c.alloc(j, n, 10)
			first.Allotment, second.Allotment = tc.given, tc.given
			both := c.placing(j, first, second)
			if res := c.submit(both); !strings.Contains(res.Rejected[n], tc.want) || c.exists(first) {
				t.Fatalf("both in one plan: %+v", res)
			}
			if res := c.submit(c.placing(j, first)); !res.Full() {
				t.Fatalf("the first: %+v", res)
			}
			if a, _ := c.View().Alloc(first.ID); a.Allotment == nil {
				t.Fatal("what it was given is not kept")
			}
			if res := c.submit(c.placing(j, second)); !strings.Contains(res.Rejected[n], tc.want) {
				t.Fatalf("the second: %+v", res)
			}
		})
	}
}
