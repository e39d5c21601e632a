package virtual_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/virtual"
	"skerry/fleet"
	"skerry/hub/state"
)

// A node whose disk is almost full says so to the hubs. What runs on it runs on; new work goes elsewhere, or waits until
// there is space.
func TestNoNewWorkOnAFullDisk(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		cfg := virtual.Config{Dir: dir, Hubs: []string{"hub-1"}, Seed: 1, BackoffCap: 10 * time.Second}
		cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: "edge-1", Datacenter: "dc1", Site: "shop"})
		c, err := virtual.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, c)
		mustCome(t, c, 5*time.Minute, "the edge is ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 1 })
		edge := c.Edge("edge-1")
		node := edge.Agent().NodeID()
		mustRun(t, c, service("till", 1))
		whyFull := func(v *state.View) string {
			n, _ := v.Node(node)
			return n.WhyFull()
		}

		edge.Disk.Fill(true)
		mustCome(t, c, time.Minute, "the hubs know that the disk is full", func(v *state.View) bool {
			return strings.Contains(whyFull(v), "free space")
		})
		mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": service("next", 1)}, nil)
		mustCome(t, c, time.Minute, "a job waits for a node", func(v *state.View) bool {
			for e := range v.EvalsByJob(fleet.DefaultNamespace, "next") {
				if e.Status == fleet.EvalBlocked {
					m := e.FailedTGAllocs["g"]
					return m != nil && m.NodesFiltered == 1 && m.ConstraintFiltered[whyFull(v)] == 1
				}
			}
			return false
		})
		if _, on := runningOf(lead(t, c).State().View(), "till", node); on != 1 {
			t.Errorf("%d allocations run on the node with the full disk, want 1", on)
		}

		edge.Disk.Fill(false)
		mustCome(t, c, time.Minute, "the job runs, with space again", func(v *state.View) bool {
			_, on := runningOf(v, "next", node)
			return on == 1 && whyFull(v) == ""
		})
	})
}
