package virtual_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
	"skerry/chaos/virtual"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// onSiteTest is a fleet of two edges with a service, a batch and a system job. People stop what runs on edge-1.
type onSiteTest struct {
	*testing.T
	c    *virtual.Cluster
	node fleet.NodeID
}

// jobsOnSite are the jobs of an onSiteTest.
var jobsOnSite = []fleet.JobID{"till", "report", "probe"}

// registerJobs registers a version of the three jobs. The service and the batch job run on edge-1 only.
func (w *onSiteTest) registerJobs(version int, until string) {
	w.Helper()
	for i, id := range jobsOnSite {
		job := service(id, 1)
		job.Type = []string{fleet.JobTypeService, fleet.JobTypeBatch, fleet.JobTypeSystem}[i]
		g := &job.TaskGroups[0]
		if g.Tasks[0].Env = map[string]string{"VERSION": strconv.Itoa(version)}; i < 2 {
			g.Constraints = []fleet.Constraint{{LTarget: "${node.unique.name}", RTarget: "edge-1", Operand: "="}}
		}
		g.ReschedulePolicy, g.Migrate, g.Update = nil, nil, nil
		if i != 1 {
			g.Update = &fleet.Update{MaxParallel: 2, HealthCheck: fleet.HealthTaskStates, MinHealthyTime: time.Second, HealthyDeadline: time.Minute, ProgressDeadline: 2 * time.Minute}
		}
		g.LocalControl = &fleet.LocalControl{Until: until}
		validate.FillDefaults(job)
		mustDo(w.T, w.c, http.MethodPut, "/v1/jobs", map[string]any{"Job": job}, nil)
	}
}

// agent returns the local API of edge-1.
func (w *onSiteTest) agent() local.Agent { return w.c.Edge("edge-1").Agent().Agent() }

// allocsOnEdge returns the allocations of edge-1 that have not ended, by job.
func (w *onSiteTest) allocsOnEdge() map[fleet.JobID]local.Alloc {
	w.Helper()
	s, err := w.agent().Status(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	found := map[fleet.JobID]local.Alloc{}
	for _, a := range s.Allocs {
		if !fleet.IsClientTerminal(a.ClientStatus) && a.Desired == fleet.DesiredRun {
			found[a.JobID] = a
		}
	}
	return found
}

// wantOnEdge lets time pass and checks the three allocations on the edge itself: their status, whether they are held,
// and the version that they have.
func (w *onSiteTest) wantOnEdge(when, status string, held bool, version uint64) {
	w.Helper()
	time.Sleep(5 * time.Minute)
	all := w.allocsOnEdge()
	for _, id := range jobsOnSite {
		if a := all[id]; a.ClientStatus != status || a.Held != nil != held || a.JobVersion != version {
			w.Errorf("%s: on the edge %s is %q in version %d, held: %v; want %q, %d, %t", when, id, a.ClientStatus, a.JobVersion, a.Held, status, version, held)
		}
	}
}

// wantAtHubs waits until the hubs say so of the newest allocations of the three jobs on the edge.
func (w *onSiteTest) wantAtHubs(when string, held bool, version uint64) {
	w.Helper()
	mustCome(w.T, w.c, 10*time.Minute, when+": the hubs know", func(v *state.View) bool {
		for _, id := range jobsOnSite {
			ok, live := false, 0
			for a := range v.AllocsByJob(fleet.DefaultNamespace, id) {
				if a.NodeID != w.node || a.ServerTerminal() || a.ClientTerminal() {
					continue
				}
				live++
				ok = a.JobVersion == version && (a.Held != nil) == held && (a.ClientStatus == fleet.ClientRunning) != held &&
					(!held || a.Held.Reason == "smoke")
			}
			if !ok || live != 1 {
				return false
			}
		}
		return true
	})
}

// stopAll stops the three allocations for a reason; startAll starts them again.
func (w *onSiteTest) stopAll() {
	w.Helper()
	for id, a := range w.allocsOnEdge() {
		if err := w.agent().Stop(context.Background(), local.StopRequest{Alloc: a.ID, Reason: "smoke"}); err != nil {
			w.Fatalf("stop %s: %v", id, err)
		}
	}
}

func (w *onSiteTest) startAll() {
	w.Helper()
	for id, a := range w.allocsOnEdge() {
		if _, err := w.agent().Start(context.Background(), a.ID, "mended"); err != nil {
			w.Fatalf("start %s: %v", id, err)
		}
	}
}

func (w *onSiteTest) cutEdgeOff() *fabric.Fault {
	return w.c.Net.Cut(fabric.Hosts("edge-1"), fabric.Everyone, fabric.Both, fabric.Silent)
}

// reboot cuts the edge's power and boots it.
func (w *onSiteTest) reboot() {
	w.Helper()
	if err := w.c.Edge("edge-1").PowerCut(); err != nil {
		w.Fatal(err)
	}
	if err := w.c.Edge("edge-1").Boot(); err != nil {
		w.Fatal(err)
	}
}

// A stop on site of a service, a batch and a system job holds with the link and without, over reboots, deaths of the
// agent, the link's return and newer versions, until somebody there starts it, which needs no link; or until a newer
// version of a job comes that says so.
func TestStopsOnSite(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		cfg := virtual.Config{Dir: dir, Hubs: []string{"hub-1"}, Seed: 1, BackoffCap: 10 * time.Second}
		for _, name := range []string{"edge-1", "edge-2"} {
			cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: name, Datacenter: "dc1", Site: name})
		}
		c, err := virtual.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, c)
		mustCome(t, c, 5*time.Minute, "the edges are ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 2 })
		w := &onSiteTest{T: t, c: c, node: c.Edge("edge-1").Agent().NodeID()}
		w.registerJobs(0, "")
		w.wantOnEdge("at first", fleet.ClientRunning, false, 0)

		w.stopAll() // with a link
		w.wantOnEdge("stopped", fleet.ClientPending, true, 0)
		w.wantAtHubs("stopped", true, 0)
		w.registerJobs(1, "")
		w.wantOnEdge("after a newer version", fleet.ClientPending, true, 0)
		w.wantAtHubs("after a newer version", true, 0)
		w.reboot()
		w.wantOnEdge("after a reboot", fleet.ClientPending, true, 0)

		cut := w.cutEdgeOff()
		time.Sleep(5 * time.Minute)
		w.startAll() // without a link
		w.wantOnEdge("started without a link", fleet.ClientRunning, false, 0)
		w.reboot()
		w.wantOnEdge("started, after a reboot without a link", fleet.ClientRunning, false, 0)
		w.stopAll()
		w.wantOnEdge("stopped without a link", fleet.ClientPending, true, 0)
		w.reboot()
		w.wantOnEdge("stopped, after a reboot without a link", fleet.ClientPending, true, 0)
		if err := c.Edge("edge-1").Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.Edge("edge-1").Start(); err != nil {
			t.Fatal(err)
		}
		w.wantOnEdge("stopped, after the agent's death", fleet.ClientPending, true, 0)
		w.registerJobs(2, "")
		cut.Heal()
		w.wantAtHubs("with a link again", true, 0)
		w.wantOnEdge("with a link again", fleet.ClientPending, true, 0)

		w.startAll()
		w.wantAtHubs("started with a link", false, 2)
		w.wantOnEdge("started with a link", fleet.ClientRunning, false, 2)

		cut = w.cutEdgeOff()
		w.stopAll()
		time.Sleep(5 * time.Minute)
		w.registerJobs(3, fleet.HoldUntilNextVersion)
		cut.Heal()
		w.wantAtHubs("overruled by a newer version", false, 3)
		w.wantOnEdge("overruled by a newer version", fleet.ClientRunning, false, 3)
	})
}
