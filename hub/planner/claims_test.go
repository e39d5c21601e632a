package planner_test

import (
	"strings"
	"testing"

	"skerry/fleet"
)

// E46: workers that raced may have given out the same port, core or device: the second
// plan is refused for that node, and what the first took is told.
func TestClaimsAreCheckedAgainstTheNewestState(t *testing.T) {
	for name, tc := range map[string]struct {
		given *fleet.Allotment
		want  string
	}{
		"port":   {&fleet.Allotment{Ports: []fleet.AllottedPort{{Label: "http", Value: 8080}}}, "port 8080 (http) is taken"},
		"core":   {&fleet.Allotment{Tasks: map[string]fleet.TaskAllotment{"t": {Cores: []int{1}}}}, "core 1 is taken"},
		"device": {&fleet.Allotment{Tasks: map[string]fleet.TaskAllotment{"t": {Devices: []fleet.AllottedDevice{{DeviceIDs: []string{"g"}}}}}}, "device g is taken"},
	} {
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
