package virtual_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/chaos/fabric"
	"skerry/chaos/virtual"
	"skerry/client"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// service is a job of so many allocations that run for ever.
func service(id fleet.JobID, count int) *fleet.Job {
	job := &fleet.Job{
		Region: fleet.DefaultRegion, Namespace: fleet.DefaultNamespace, ID: id, Name: string(id), Type: fleet.JobTypeService,
		Priority: fleet.JobPriorityDefault, Datacenters: []string{"*"},
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: count, Tasks: []fleet.Task{{
			Name: "t", Driver: "sim", Resources: fleet.TaskResources{Resources: fleet.Resources{CPU: 100, MemoryMB: 64}},
		}}}},
	}
	validate.FillDefaults(job)
	return job
}

// lead is the hub that leads, once there is one.
func lead(t *testing.T, c *virtual.Cluster) *virtual.Hub {
	t.Helper()
	for give := time.Now().Add(5 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if h := c.Leader(); h != nil {
			return h
		}
		if time.Now().After(give) {
			t.Fatal("nobody leads")
		}
	}
}

// mustDo does something by HTTP with the hub that leads, again where there is none.
func mustDo(t *testing.T, c *virtual.Cluster, method, path string, in, out any) {
	t.Helper()
	var err error
	for range 60 {
		if err = lead(t, c).Call(context.Background(), method, path, in, out); err == nil || client.StatusOf(err)/100 == 4 {
			break
		}
		time.Sleep(time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mustCome polls the leader's state in virtual time.
func mustCome(t *testing.T, c *virtual.Cluster, within time.Duration, what string, ok func(*state.View) bool) {
	t.Helper()
	for give := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		h := c.Leader()
		if h != nil && ok(h.State().View()) {
			return
		}
		if time.Now().After(give) {
			var b strings.Builder
			if h != nil {
				_ = h.State().View().Describe(&b)
			}
			t.Fatalf("%s: not within %s\n%s", what, within, b.String())
		}
	}
}

// mustFailOver kills the hub that leads, and starts it again once another one does.
func mustFailOver(t *testing.T, c *virtual.Cluster) {
	t.Helper()
	old := lead(t, c)
	if err := old.Crash(); err != nil {
		t.Fatal(err)
	}
	lead(t, c)
	if err := old.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// runningOf counts a job's allocations that run, on any node and on one.
func runningOf(v *state.View, job fleet.JobID, node fleet.NodeID) (all, on int) {
	for a := range v.AllocsByJob(fleet.DefaultNamespace, job) {
		if a.ClientStatus == fleet.ClientRunning && a.DesiredStatus == fleet.DesiredRun {
			all++
			if a.NodeID == node {
				on++
			}
		}
	}
	return all, on
}

func mustRun(t *testing.T, c *virtual.Cluster, job *fleet.Job) {
	t.Helper()
	mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": job}, nil)
	mustCome(t, c, time.Minute, string(job.ID)+" runs", func(v *state.View) bool {
		n, _ := runningOf(v, job.ID, "")
		return n == job.TaskGroups[0].Count
	})
}

func drainOf(node fleet.NodeID, deadline time.Duration) (string, api.DrainRequest) {
	return fmt.Sprintf("/v1/node/%s/drain", node), api.DrainRequest{NodeID: node, DrainSpec: &api.DrainSpec{Deadline: deadline}}
}

// TestDrainSurvivesTheLeader kills the leader in the middle of a drain: the next one
// goes on, one allocation at a time, and ends it once.
func TestDrainSurvivesTheLeader(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 3, "edge-a", "edge-b")
		defer mustClose(t, c)
		mustRun(t, c, service("web", 8))
		node := c.Edge("edge-a").Agent().NodeID()
		_, before := runningOf(lead(t, c).State().View(), "web", node)
		if before < 2 {
			t.Fatalf("%d allocations on the node that is to be drained", before)
		}
		path, req := drainOf(node, time.Hour)
		mustDo(t, c, http.MethodPut, path, req, nil)
		mustCome(t, c, 5*time.Minute, "the first has moved", func(v *state.View) bool {
			_, on := runningOf(v, "web", node)
			return on < before
		})
		mustFailOver(t, c)
		least := 8
		mustCome(t, c, 30*time.Minute, "the node is drained", func(v *state.View) bool {
			all, on := runningOf(v, "web", node)
			least = min(least, all)
			n, _ := v.Node(node)
			return n.DrainStrategy == nil && on == 0
		})
		if least < 7 {
			t.Errorf("%d of 8 ran in between, and one at a time was to move", least)
		}
		mustCome(t, c, time.Minute, "all run elsewhere", func(v *state.View) bool {
			all, on := runningOf(v, "web", node)
			return all == 8 && on == 0
		})
		n, _ := lead(t, c).State().View().Node(node)
		ended := 0
		for _, e := range n.Events {
			if e.Message == "Node drain complete" {
				ended++
			}
		}
		if n.LastDrain.Status != fleet.DrainComplete || n.SchedulingEligibility != fleet.NodeIneligible || ended != 1 {
			t.Errorf("last drain %+v, %s, ended %d times", n.LastDrain, n.SchedulingEligibility, ended)
		}
	})
}

// TestDrains is what becomes of drains as a whole (H4, H5, H8).
func TestDrains(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-a")
		defer mustClose(t, c)
		node := c.Edge("edge-a").Agent().NodeID()
		drained := func(within time.Duration, what string) fleet.Node {
			t.Helper()
			mustCome(t, c, within, what, func(v *state.View) bool {
				n, _ := v.Node(node)
				return n.DrainStrategy == nil
			})
			n, _ := lead(t, c).State().View().Node(node)
			return *n
		}
		begin := func(deadline time.Duration) {
			t.Helper()
			path, req := drainOf(node, deadline)
			mustDo(t, c, http.MethodPut, path, req, nil)
		}
		end := func() {
			t.Helper()
			mustDo(t, c, http.MethodPut, fmt.Sprintf("/v1/node/%s/drain", node), api.DrainRequest{MarkEligible: true}, nil)
		}

		// H5: nothing is on it.
		begin(time.Hour)
		drained(5*time.Second, "H5: an empty node is drained at once")
		end()

		// H5: batch is left alone without a deadline, and moved at once by force.
		batch := service("batch", 1)
		batch.Type = fleet.JobTypeBatch
		g := &batch.TaskGroups[0]
		g.ReschedulePolicy, g.RestartPolicy, g.Update, g.Migrate = nil, nil, nil, nil
		validate.FillDefaults(batch)
		mustRun(t, c, batch)
		begin(0)
		time.Sleep(time.Hour)
		if n, _ := lead(t, c).State().View().Node(node); n.DrainStrategy == nil {
			t.Fatal("H5: a drain without a deadline ended under a batch job")
		}
		if all, _ := runningOf(lead(t, c).State().View(), "batch", node); all != 1 {
			t.Fatal("H5: a batch job was stopped without a deadline")
		}
		begin(-1)
		drained(5*time.Second, "H5: batch is moved at once by force")
		mustCome(t, c, time.Minute, "H5: batch has stopped", func(v *state.View) bool {
			all, _ := runningOf(v, "batch", node)
			return all == 0
		})
		mustDo(t, c, http.MethodDelete, "/v1/job/batch?purge=true", nil, nil)
		end()

		// H4: one node, one second: stopped, and not replaced.
		mustRun(t, c, service("web", 2))
		begin(time.Second)
		n := drained(10*time.Second, "H4: a deadline ends the drain")
		if d := n.Events[len(n.Events)-1].Details[state.DetailDrainOverdue]; d != "true" {
			t.Errorf("H4: the last event is %+v", n.Events[len(n.Events)-1])
		}
		mustCome(t, c, time.Minute, "H4: all have stopped, and wait", func(v *state.View) bool {
			live := 0
			for a := range v.AllocsByJob(fleet.DefaultNamespace, "web") {
				if !a.Terminal() || !a.ClientTerminal() {
					live++
				}
			}
			sum, _ := v.JobSummary(fleet.DefaultNamespace, "web")
			return live == 0 && sum.Summary["g"].Queued == 2
		})
		end()
		mustCome(t, c, time.Minute, "they run again when the node is eligible", func(v *state.View) bool {
			all, _ := runningOf(v, "web", node)
			return all == 2
		})
	})
}

// TestDrainWinsOverDisconnect drains a node whose link is gone: what it had is
// replaced elsewhere, though nothing else would have; what still runs there stops
// when it is back. The drain itself waits for the node (H8).
func TestDrainWinsOverDisconnect(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-a", "edge-b")
		defer mustClose(t, c)
		mustRun(t, c, service("web", 6))
		e := c.Edge("edge-a")
		node := e.Agent().NodeID()
		_, there := runningOf(lead(t, c).State().View(), "web", node)
		cut := c.Net.Cut(fabric.Hosts(e.Host.Name()), fabric.Except(e.Host.Name()), fabric.Both, fabric.Silent)
		mustCome(t, c, 5*time.Minute, "the node is disconnected", func(v *state.View) bool {
			n, _ := v.Node(node)
			return n.Status == fleet.NodeDisconnected
		})
		if all, _ := runningOf(lead(t, c).State().View(), "web", node); all != 6-there {
			t.Fatalf("%d run without the %d that are out of sight", all, there)
		}
		path, req := drainOf(node, 0)
		mustDo(t, c, http.MethodPut, path, req, nil)
		mustCome(t, c, 10*time.Minute, "all run elsewhere", func(v *state.View) bool {
			all, on := runningOf(v, "web", node)
			return all == 6 && on == 0
		})
		time.Sleep(10 * time.Minute)
		if n, _ := lead(t, c).State().View().Node(node); n.DrainStrategy == nil {
			t.Fatal("H8: the drain of a node that is away has ended without a deadline")
		}
		cut.Heal()
		mustCome(t, c, 10*time.Minute, "H8: the drain ends when the node is back", func(v *state.View) bool {
			n, _ := v.Node(node)
			return n.DrainStrategy == nil && n.Status == fleet.NodeReady
		})
		for a := range lead(t, c).State().View().AllocsByNode(node) {
			if !a.EndedOnEdge() {
				t.Errorf("allocation %s is %s, reported %s", a.Name, a.ClientStatus, a.ReportedStatus)
			}
		}
	})
}

// childrenOf lists the children of a job, by id.
func childrenOf(v *state.View, parent fleet.JobID) []*fleet.Job {
	var out []*fleet.Job
	for j := range v.Jobs(fleet.DefaultNamespace, string(parent)+"/") {
		out = append(out, j)
	}
	return out
}

// batchOf is a batch job whose task runs for a while and succeeds.
func batchOf(id fleet.JobID, runFor string) *fleet.Job {
	job := service(id, 1)
	job.Type = fleet.JobTypeBatch
	g := &job.TaskGroups[0]
	g.ReschedulePolicy, g.RestartPolicy, g.Update, g.Migrate = nil, nil, nil, nil
	g.Tasks[0].Config = map[string]any{"run_for": runFor}
	return job
}

// TestPeriodicSurvivesTheLeader kills leaders around the time of a launch (H10): each
// time is launched once, what was missed while nobody led is made up for once, and a
// child that runs is not joined by another one where that is prohibited.
func TestPeriodicSurvivesTheLeader(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 3, "edge-a")
		defer mustClose(t, c)
		every := batchOf("every", "5s")
		every.Periodic = &fleet.Periodic{Enabled: true, Spec: "*/10 * * * *", ProhibitOverlap: true}
		validate.FillDefaults(every)
		long := batchOf("long", "25m")
		long.Periodic = &fleet.Periodic{Enabled: true, Specs: []string{"*/10 * * * *"}, ProhibitOverlap: true}
		validate.FillDefaults(long)
		for _, job := range []*fleet.Job{every, long} {
			mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": job}, nil)
		}
		began := time.Now().Truncate(10 * time.Minute)
		for range 3 { // kill the leader just before, at and after a time
			time.Sleep(time.Until(time.Now().Truncate(10 * time.Minute).Add(10*time.Minute - time.Second)))
			mustFailOver(t, c)
			time.Sleep(time.Minute)
		}
		for _, h := range c.Hubs { // nobody leads for three times
			if err := h.Crash(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(31 * time.Minute)
		for _, h := range c.Hubs {
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		lead(t, c)
		time.Sleep(time.Minute)
		mustCome(t, c, 5*time.Minute, "all children of every have run", func(v *state.View) bool {
			kids := childrenOf(v, "every")
			for _, k := range kids {
				if k.Status != fleet.JobStatusDead {
					return false
				}
			}
			return len(kids) == 4
		})
		v := lead(t, c).State().View()
		for i, k := range childrenOf(v, "every") {
			// three times, and the first of those that were missed
			if want := fleet.LaunchID("every", began.Add(time.Duration(i+1)*10*time.Minute)); k.ID != want {
				t.Errorf("H10: child %d is %s, want %s", i, k.ID, want)
			}
			n := 0
			for range v.AllocsByJob(k.Namespace, k.ID) {
				n++
			}
			if n != 1 {
				t.Errorf("H10: %s has %d allocations", k.ID, n)
			}
		}
		// Its first child was running, as far as the cluster knew, at every time so far.
		if kids := childrenOf(v, "long"); len(kids) != 1 {
			t.Errorf("H10: %d children of long, which runs for 25 minutes", len(kids))
		}
		mustCome(t, c, 15*time.Minute, "H10: the next time is launched", func(v *state.View) bool { return len(childrenOf(v, "long")) == 2 })
		mustCome(t, c, 5*time.Minute, "all evaluations have ended", evaluationsEnded)
	})
}

// evaluationsEnded reports whether no evaluation is left.
func evaluationsEnded(v *state.View) bool {
	for e := range v.Evals("*", "") {
		if !e.Terminal() {
			return false
		}
	}
	return true
}

// TestDispatchSurvivesTheLeader kills the leader while jobs are dispatched: who asks
// again with the same token gets the same job, and each runs once.
func TestDispatchSurvivesTheLeader(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 3, "edge-a")
		defer mustClose(t, c)
		job := batchOf("resize", "5s")
		job.ParameterizedJob = &fleet.ParameterizedJob{MetaRequired: []string{"image"}}
		validate.FillDefaults(job)
		mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": job}, nil)
		ids := map[fleet.JobID]bool{}
		for i := range 12 {
			if i == 6 {
				mustFailOver(t, c)
			}
			path := fmt.Sprintf("/v1/job/resize/dispatch?idempotency_token=t%d", i)
			var first, again api.DispatchAnswer
			in := map[string]any{"Meta": map[string]string{"image": fmt.Sprint(i)}}
			if i == 9 { // the leader dies while it is asked: the answer may never come
				leader := lead(t, c)
				var asked sync.WaitGroup
				asked.Go(func() { _ = leader.Call(context.Background(), http.MethodPut, path, in, nil) })
				if err := leader.Crash(); err != nil {
					t.Fatal(err)
				}
				asked.Wait()
			}
			mustDo(t, c, http.MethodPut, path, in, &first)
			mustDo(t, c, http.MethodPut, path, in, &again)
			if first.DispatchedJobID != again.DispatchedJobID {
				t.Errorf("token t%d gave %s and %s", i, first.DispatchedJobID, again.DispatchedJobID)
			}
			ids[first.DispatchedJobID] = true
		}
		mustCome(t, c, 10*time.Minute, "all have run", func(v *state.View) bool {
			done := 0
			for _, k := range childrenOf(v, "resize") {
				if k.Status == fleet.JobStatusDead {
					done++
				}
			}
			return done == 12 && len(ids) == 12
		})
		mustCome(t, c, 5*time.Minute, "all evaluations have ended", evaluationsEnded)
		for _, k := range childrenOf(lead(t, c).State().View(), "resize") {
			n := 0
			for range lead(t, c).State().View().AllocsByJob(k.Namespace, k.ID) {
				n++
			}
			if n != 1 || !ids[k.ID] {
				t.Errorf("%s has %d allocations", k.ID, n)
			}
		}
	})
}
