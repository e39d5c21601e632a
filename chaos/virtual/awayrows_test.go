package virtual_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/chaos/fabric"
	"skerry/chaos/virtual"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// allocStatus is an allocation as the API shows it.
type allocStatus struct {
	ID                          fleet.AllocID
	NodeID                      fleet.NodeID
	ClientStatus, DesiredStatus string
	CreateIndex                 fleet.Index
	TaskStates                  map[string]struct{ Events []struct{ Type string } }
}

func mustAllocs(t *testing.T, c *virtual.Cluster, job fleet.JobID) map[fleet.AllocID]allocStatus {
	t.Helper()
	var list []allocStatus
	mustDo(t, c, http.MethodGet, "/v1/job/"+string(job)+"/allocations", nil, &list)
	all := map[fleet.AllocID]allocStatus{}
	for _, a := range list {
		all[a.ID] = a
	}
	return all
}

// mustSplit runs a job of two allocations, one on each of two edges, and returns the
// one that is on the edge whose link will go.
func mustSplit(t *testing.T, c *virtual.Cluster, job *fleet.Job, e *virtual.Edge) allocStatus {
	t.Helper()
	mustRun(t, c, job)
	for _, a := range mustAllocs(t, c, job.ID) {
		if _, on := runningOf(lead(t, c).State().View(), job.ID, e.Agent().NodeID()); on != 1 {
			t.Fatalf("%d of %s are on %s", on, job.ID, e.Name)
		}
		if a.NodeID == e.Agent().NodeID() {
			return a
		}
	}
	t.Fatalf("nothing of %s on %s", job.ID, e.Name)
	return allocStatus{}
}

// TestAwayAndBackByTheRules cuts one of two edges off and lets it come back, and looks
// at all of a job's allocations through the API, during that and after it.
func TestAwayAndBackByTheRules(t *testing.T) {
	hour := time.Hour
	for _, tc := range []struct {
		row, pool     string
		block         *fleet.Disconnect
		node          fleet.NodeStatus // while it is away
		during, after [2]string        // of the original, and of its replacement
	}{
		{"A82", fleet.DisconnectNomad, nil, fleet.NodeDown,
			[2]string{fleet.ClientLost, fleet.ClientRunning}, [2]string{fleet.ClientComplete, fleet.ClientRunning}},
		{"A83", "", &fleet.Disconnect{LostAfter: &hour}, fleet.NodeDisconnected,
			[2]string{fleet.ClientUnknown, fleet.ClientRunning}, [2]string{fleet.ClientRunning, fleet.ClientComplete}},
	} {
		t.Run(tc.row, func(t *testing.T) {
			dir := mustMemory(t)
			synctest.Test(t, func(t *testing.T) {
				c := mustCluster(t, dir, 1, "edge-a", "edge-b")
				defer mustClose(t, c)
				mustDo(t, c, http.MethodPut, "/v1/node/pools", fleet.Pool{Name: fleet.DefaultPool, DefaultDisconnect: tc.pool}, nil)
				job, e := service("web", 2), c.Edge("edge-a")
				job.TaskGroups[0].Disconnect = tc.block
				original := mustSplit(t, c, job, e)
				cut := c.Net.Cut(fabric.Hosts(e.Host.Name()), fabric.Except(e.Host.Name()), fabric.Both, fabric.Silent)
				mustCome(t, c, 10*time.Minute, "another one runs in its place", func(v *state.View) bool {
					n, _ := v.Node(e.Agent().NodeID())
					all, on := runningOf(v, "web", n.ID)
					return n.Status == tc.node && all-on == 2
				})
				mustLook(t, c, original.ID, tc.during)
				cut.Heal()
				mustCome(t, c, 10*time.Minute, "it is back and settled", func(v *state.View) bool {
					n, _ := v.Node(e.Agent().NodeID())
					a, _ := v.Alloc(original.ID)
					return n.Status == fleet.NodeReady && a.ClientStatus == tc.after[0] && !a.NeedsToReconnect()
				})
				time.Sleep(time.Minute)
				mustLook(t, c, original.ID, tc.after)
			})
		})
	}
}

// mustLook wants three allocations of the job: the original, the one on the other edge
// that was never touched, and a replacement.
func mustLook(t *testing.T, c *virtual.Cluster, original fleet.AllocID, want [2]string) {
	t.Helper()
	all := mustAllocs(t, c, "web")
	v := lead(t, c).State().View()
	if len(all) != 3 || all[original].ClientStatus != want[0] {
		t.Errorf("%d allocations, the original is %s; want 3 and %s", len(all), all[original].ClientStatus, want[0])
	}
	for id, a := range all {
		full, _ := v.Alloc(id)
		switch {
		case id == original:
		case full.PreviousAllocation == original && a.ClientStatus != want[1]:
			t.Errorf("the replacement is %s, want %s", a.ClientStatus, want[1])
		case full.PreviousAllocation == "" && (a.ClientStatus != fleet.ClientRunning || a.DesiredStatus != fleet.DesiredRun):
			t.Errorf("the one that nothing happened to: %+v", a)
		}
	}
}

// A79, A80: a hub says unknown, and the edge goes on as before: the same allocation
// with the same first index, the same run of its task, and one event more.
func TestBackWithOneEvent(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-a", "edge-b")
		defer mustClose(t, c)
		e := c.Edge("edge-a")
		before := mustSplit(t, c, service("web", 2), e)
		events := func(a allocStatus) (kinds []string) {
			for _, event := range a.TaskStates["t"].Events {
				kinds = append(kinds, event.Type)
			}
			return kinds
		}
		was := events(mustAllocs(t, c, "web")[before.ID])
		cut := c.Net.Cut(fabric.Hosts(e.Host.Name()), fabric.Except(e.Host.Name()), fabric.Both, fabric.Silent)
		mustCome(t, c, 10*time.Minute, "A80: it is unknown", func(v *state.View) bool {
			a, _ := v.Alloc(before.ID)
			return a.ClientStatus == fleet.ClientUnknown
		})
		cut.Heal()
		mustCome(t, c, 10*time.Minute, "A80: it is running again", func(v *state.View) bool {
			a, _ := v.Alloc(before.ID)
			n, _ := v.Node(before.NodeID)
			return a.ClientStatus == fleet.ClientRunning && n.Status == fleet.NodeReady && !a.NeedsToReconnect()
		})
		time.Sleep(time.Minute)
		all := mustAllocs(t, c, "web")
		after := all[before.ID]
		if len(all) != 2 || after.CreateIndex != before.CreateIndex || after.DesiredStatus != fleet.DesiredRun || after.NodeID != before.NodeID {
			t.Errorf("A79: %d allocations, before %+v, after %+v", len(all), before, after)
		}
		got := events(after)
		if len(got) != len(was)+1 || got[len(got)-1] != fleet.TaskReconnected {
			t.Errorf("A79: events %v, before %v; want one more, %s", got, was, fleet.TaskReconnected)
		}
	})
}

// A115: what was dispatched follows its group's rules like any batch job: the
// allocation of a child becomes unknown, is replaced, and one of the two stays.
func TestDispatchedAndAway(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-a", "edge-b")
		defer mustClose(t, c)
		hour := time.Hour
		job := batchOf("resize", "24h")
		job.ParameterizedJob = &fleet.ParameterizedJob{}
		job.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &hour, Reconcile: fleet.ReconcileKeepOriginal}
		validate.FillDefaults(job)
		mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": job}, nil)
		var child api.DispatchAnswer
		mustDo(t, c, http.MethodPut, "/v1/job/resize/dispatch", map[string]any{}, &child)
		of := func(v *state.View) (all []*fleet.Alloc) {
			for a := range v.AllocsByJob(fleet.DefaultNamespace, child.DispatchedJobID) {
				all = append(all, a)
			}
			return all
		}
		mustCome(t, c, time.Minute, "it runs", func(v *state.View) bool {
			all := of(v)
			return len(all) == 1 && all[0].ClientStatus == fleet.ClientRunning
		})
		original := of(lead(t, c).State().View())[0]
		e := c.Edge(original.NodeName)
		cut := c.Net.Cut(fabric.Hosts(e.Host.Name()), fabric.Except(e.Host.Name()), fabric.Both, fabric.Silent)
		mustCome(t, c, 10*time.Minute, "A115: unknown, and replaced", func(v *state.View) bool {
			a, _ := v.Alloc(original.ID)
			all := of(v)
			n, _ := runningOf(v, child.DispatchedJobID, "")
			return len(all) == 2 && a.ClientStatus == fleet.ClientUnknown && n == 1
		})
		cut.Heal()
		mustCome(t, c, 10*time.Minute, "A115: the original stays", func(v *state.View) bool {
			a, _ := v.Alloc(original.ID)
			n, on := runningOf(v, child.DispatchedJobID, original.NodeID)
			return a.ClientStatus == fleet.ClientRunning && n == 1 && on == 1
		})
	})
}
