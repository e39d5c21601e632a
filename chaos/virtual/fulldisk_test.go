package virtual_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/virtual"
	"skerry/edge/local"
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

// A commit that fills the disk outlives a loss of power.
func TestPowerCutOnAFullDisk(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-1")
		defer mustClose(t, c)
		mustRun(t, c, service("till", 1))
		e := c.Edge("edge-1")
		var alloc fleet.AllocID
		for a := range lead(t, c).State().View().AllocsByJob(fleet.DefaultNamespace, "till") {
			alloc = a.ID
		}
		newest := func() fleet.Seq {
			_, j := e.Agent().SyncStatus()
			return j.Last
		}
		for round := range 4 { // the commit that takes the last space differs
			mustBecome(t, e, "ready", 5*time.Minute, ready)
			time.Sleep(2 * time.Minute) // the reserve is there again
			before := newest()
			e.Disk.Fill(true)
			for range 100 { // far more than the reserve has space for
				_ = e.Agent().Agent().Restart(t.Context(), alloc, "", "the screen is black") // refused, or not journaled in time, once nothing fits
				time.Sleep(time.Duration(1+round) * time.Second)
			}
			committed := newest()
			if n := committed - before; n == 0 || n >= 100 {
				t.Fatalf("%d rows were committed while the disk was full: they should fill the reserve", n)
			}
			if err := e.PowerCut(); err != nil {
				t.Fatal(err)
			}
			e.Disk.Fill(false)
			if err := e.Boot(); err != nil {
				t.Fatal(err)
			}
			if _, j := e.Agent().SyncStatus(); j.Lost != "" || j.Last < committed {
				t.Errorf("after the loss of power the journal ends at row %d, after row %d was committed: %q", j.Last, committed, j.Lost)
			}
		}
	})
}

// Another program takes all space that the agent gives up while the disk is full. After a loss of power, the tasks run
// all the same.
func TestStartOnADiskThatOthersFill(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-1")
		defer mustClose(t, c)
		mustRun(t, c, service("till", 1))
		e := c.Edge("edge-1")
		running := func(s local.Status) bool {
			return len(s.Allocs) == 1 && s.Allocs[0].ClientStatus == fleet.ClientRunning
		}
		mustBecome(t, e, "running", time.Minute, running)
		e.Disk.Fill(true)
		for range 10 * 60 {
			e.Disk.TakeFreeSpace()
			time.Sleep(time.Second)
		}
		_, before := e.Agent().SyncStatus()
		if err := e.PowerCut(); err != nil {
			t.Fatal(err)
		}
		if err := e.Boot(); err != nil {
			t.Fatal(err)
		}
		mustBecome(t, e, "running again", time.Minute, func(s local.Status) bool {
			return running(s) && s.Allocs[0].LastSeq > before.Last
		})
	})
}
