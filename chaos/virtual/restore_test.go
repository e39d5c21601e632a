package virtual_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
	"skerry/chaos/virtual"
	"skerry/drivers/sim"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/hub"
	"skerry/hub/state"
)

// runs counts how often the tasks of each allocation were begun and stopped, on the
// machines themselves; and notes what each hub made of each entry.
type runs struct {
	mu       sync.Mutex
	started  map[fleet.AllocID]int
	stopped  map[fleet.AllocID]int
	restores map[string]int // of each hub
}

func (r *runs) countingObservers() virtual.Observers {
	r.started, r.stopped, r.restores = map[fleet.AllocID]int{}, map[fleet.AllocID]int{}, map[string]int{}
	return virtual.Observers{
		Task: func(_ string, e sim.Event) {
			alloc, _, _ := strings.Cut(e.ID, "/")
			r.mu.Lock()
			defer r.mu.Unlock()
			switch e.What {
			case sim.Started:
				r.started[fleet.AllocID(alloc)]++
			case sim.Stopped:
				r.stopped[fleet.AllocID(alloc)]++
			}
		},
		Applied: func(name string, a hub.Applied) {
			if _, ok := a.Command.(state.SnapshotRestore); ok && a.Result.Err == nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.restores[name]++
			}
		},
	}
}

func (r *runs) countsOfAlloc(id fleet.AllocID) (started, stopped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started[id], r.stopped[id]
}

func mustFleet(t *testing.T, dir string, taps virtual.Observers, edges ...string) *virtual.Cluster {
	t.Helper()
	cfg := virtual.Config{Dir: dir, Hubs: []string{"hub-1", "hub-2", "hub-3"}, Seed: 1, Tuning: virtual.Stretched, Taps: taps}
	for _, name := range edges {
		cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: name, Datacenter: name})
	}
	c, err := virtual.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range c.Edges {
		mustBecome(t, e, "ready", time.Minute, ready)
	}
	return c
}

// on pins a job to one edge.
func on(edge string, job *fleet.Job) *fleet.Job {
	job.Datacenters = []string{edge}
	return job
}

func mustOne(t *testing.T, c *virtual.Cluster, job fleet.JobID) fleet.AllocID {
	t.Helper()
	for id := range mustAllocs(t, c, job) {
		return id
	}
	t.Fatalf("job %s has no allocation", job)
	return ""
}

// mustAgree wants the three hubs to have the same state.
func mustAgree(t *testing.T, c *virtual.Cluster) {
	t.Helper()
	var seen []string
	for give := time.Now().Add(10 * time.Minute); time.Now().Before(give); time.Sleep(time.Second) {
		seen = nil
		for _, h := range c.Hubs {
			if s := h.State(); s != nil {
				if err := s.View().Check(); err != nil {
					t.Fatalf("%s: %v", h.Name, err)
				}
				seen = append(seen, s.View().Digest())
			}
		}
		if len(seen) == len(c.Hubs) && len(slices.Compact(seen)) == 1 {
			return
		}
	}
	t.Fatalf("the hubs have different states: %v", seen)
}

// TestRestoreWhileTheFleetRuns restores a snapshot, handed to a hub that does not lead,
// while edges have reported much since, and one of them is away: what was registered
// since is forgotten, nothing that runs is touched, nothing that ended runs again, and
// each edge says again what the cluster lost, and that it went back.
func TestRestoreWhileTheFleetRuns(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		r := &runs{}
		c := mustFleet(t, dir, r.countingObservers(), "edge-a", "edge-b", "edge-c")
		defer mustClose(t, c)
		mustRun(t, c, on("edge-a", service("web", 1)))
		mustRun(t, c, on("edge-b", batchOf("count", "5m")))
		mustRun(t, c, on("edge-c", batchOf("away", "30m")))
		web, count, away := mustOne(t, c, "web"), mustOne(t, c, "count"), mustOne(t, c, "away")
		mustRun(t, c, on("edge-b", service("wide", 1)))
		wide := mustOne(t, c, "wide")
		// One that waits for its edge to take work is placed after the snapshot.
		waits := "/v1/node/" + string(c.Edge("edge-b").Agent().NodeID()) + "/eligibility"
		mustDo(t, c, http.MethodPut, waits, map[string]any{"Eligibility": fleet.NodeIneligible}, nil)
		mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": on("edge-b", batchOf("waits", "2m"))}, nil)
		time.Sleep(time.Minute)
		file := mustSnapshot(t, c)
		mustDo(t, c, http.MethodPut, waits, map[string]any{"Eligibility": fleet.NodeEligible}, nil)
		snapshot := state.New()
		if err := snapshot.Restore(bytes.NewReader(file)); err != nil {
			t.Fatal(err)
		}

		mustRun(t, c, on("edge-b", service("later", 1)))
		later := mustOne(t, c, "later")
		mustRun(t, c, on("edge-b", service("wide", 3)))
		mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": on("edge-b", service("never", 0))}, nil)
		mustCome(t, c, 20*time.Minute, "the batch job is done", func(v *state.View) bool {
			a, _ := v.Alloc(count)
			return a.ClientStatus == fleet.ClientComplete
		})
		waited := mustOne(t, c, "waits")
		cut := c.Net.Cut(fabric.Hosts("edge-c"), fabric.Except("edge-c"), fabric.Both, fabric.Silent)
		mustCome(t, c, 20*time.Minute, "one edge is away", func(v *state.View) bool {
			n, _ := v.Node(c.Edge("edge-c").Agent().NodeID())
			return n.Status == fleet.NodeDisconnected
		})

		var asked *virtual.Hub
		for _, h := range c.Hubs {
			if h != lead(t, c) {
				asked = h
			}
		}
		done, err := asked.RestoreSnapshot(context.Background(), bytes.NewReader(file), false)
		if err != nil {
			t.Fatal(err)
		}
		if done.RestoredTo != snapshot.View().Index() {
			t.Errorf("restored to entry %d, the snapshot is of %d", done.RestoredTo, snapshot.View().Index())
		}
		v := asked.State().View()
		if _, ok := v.Job(fleet.DefaultNamespace, "later"); ok {
			t.Error("a job of after the snapshot is there")
		}
		if a, _ := v.Alloc(count); a.ClientStatus != fleet.ClientComplete {
			t.Errorf("what had ended is %s", a.ClientStatus)
		}
		for _, e := range []string{"edge-a", "edge-b"} {
			s := mustBecome(t, c.Edge(e), "ready again", 10*time.Minute, func(s local.Status) bool { return ready(s) && s.Link.WentBack != "" })
			if !strings.Contains(s.Link.WentBack, "a snapshot was restored") {
				t.Errorf("%s says %q", e, s.Link.WentBack)
			}
		}
		mustCome(t, c, 10*time.Minute, "what the cluster does not know is shown", func(v *state.View) bool {
			n, _ := v.Node(c.Edge("edge-b").Agent().NodeID())
			return n.Status == fleet.NodeReady && slices.Equal(n.Orphans, []fleet.AllocID{later})
		})
		mustCome(t, c, 10*time.Minute, "the edge that is away is missed", func(v *state.View) bool {
			n, _ := v.Node(c.Edge("edge-c").Agent().NodeID())
			return n.Status == fleet.NodeDisconnected
		})
		time.Sleep(time.Hour) // what runs on the edge that is away ends meanwhile
		cut.Heal()
		mustCome(t, c, 20*time.Minute, "it is back with all that happened", func(v *state.View) bool {
			n, _ := v.Node(c.Edge("edge-c").Agent().NodeID())
			a, _ := v.Alloc(away)
			return n.Status == fleet.NodeReady && a.ClientStatus == fleet.ClientComplete
		})
		time.Sleep(10 * time.Minute)
		for _, e := range c.Edges {
			_, journal := e.Agent().SyncStatus()
			n, _ := lead(t, c).State().View().Node(e.Agent().NodeID())
			if n.Applied != journal.Last {
				t.Errorf("the cluster has %s up to row %d of %d", e.Name, n.Applied, journal.Last)
			}
		}
		mustDo(t, c, http.MethodPut, waits, map[string]any{"Eligibility": fleet.NodeEligible}, nil)
		time.Sleep(10 * time.Minute)
		if n, _ := runningOf(lead(t, c).State().View(), "wide", ""); n != 1 {
			t.Errorf("%d of a job run that has one again", n)
		}
		for id, stops := range map[fleet.AllocID]int{web: 0, later: 0, count: 0, away: 0, wide: 0, waited: 0} {
			if started, stopped := r.countsOfAlloc(id); started != 1 || stopped != stops {
				t.Errorf("allocation %s was begun %d times and stopped %d times", fleet.Short(id), started, stopped)
			}
		}
		for _, job := range []fleet.JobID{"web", "count", "away", "waits"} {
			if n := len(mustAllocs(t, c, job)); n != 1 {
				t.Errorf("%s has %d allocations: something was begun again", job, n)
			}
		}
		mustAgree(t, c)
		if len(r.restores) != 3 {
			t.Errorf("hubs that restored it: %v", r.restores)
		}
	})
}

// TestRestoreSurvivesTheLeader kills the leader at every stage of a restore. It is done
// on all hubs or on none, and a person may always do it again.
func TestRestoreSurvivesTheLeader(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		r := &runs{}
		c := mustFleet(t, dir, r.countingObservers(), "edge-a")
		defer mustClose(t, c)
		mustRun(t, c, service("web", 2))
		file := mustSnapshot(t, c)
		var whole, none int
		for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond} {
			mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": service("later", 0)}, nil)
			old := lead(t, c)
			var asked *virtual.Hub
			for _, h := range c.Hubs {
				if h != old {
					asked = h
				}
			}
			answered := make(chan error, 1)
			go func() {
				_, err := asked.RestoreSnapshot(context.Background(), bytes.NewReader(file), false)
				answered <- err
			}()
			time.Sleep(after)
			if err := old.Crash(); err != nil {
				t.Fatal(err)
			}
			err := <-answered
			lead(t, c)
			if err := old.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustAgree(t, c)
			v := lead(t, c).State().View()
			if _, there := v.Job(fleet.DefaultNamespace, "later"); !there {
				whole++
			} else if none++; err == nil {
				t.Errorf("killed after %s: a restore that was acknowledged is gone", after)
			}
			mustCome(t, c, 10*time.Minute, "nothing of it is left", func(v *state.View) bool {
				_, under := v.Restoring()
				return !under
			})
			if _, err := asked.RestoreSnapshot(context.Background(), bytes.NewReader(file), false); err != nil {
				t.Errorf("killed after %s, restored again: %v", after, err)
			}
			mustCome(t, c, 10*time.Minute, "it is restored, and runs", func(v *state.View) bool {
				_, there := v.Job(fleet.DefaultNamespace, "later")
				n, _ := runningOf(v, "web", "")
				node, _ := v.Node(c.Edges[0].Agent().NodeID())
				return !there && n == 2 && node.Status == fleet.NodeReady
			})
		}
		t.Logf("restored %d times, not at all %d times", whole, none)
		for id := range mustAllocs(t, c, "web") {
			if started, stopped := r.countsOfAlloc(id); started != 1 || stopped != 0 {
				t.Errorf("allocation %s was begun %d times and stopped %d times", fleet.Short(id), started, stopped)
			}
		}
	})
}

// mustSnapshot reads a snapshot of the cluster's state from the hub that leads.
func mustSnapshot(t *testing.T, c *virtual.Cluster) []byte {
	t.Helper()
	file, err := lead(t, c).Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
