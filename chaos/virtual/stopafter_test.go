package virtual_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// A version with a shorter stop_on_client_after reaches the hubs when the link of the edge is already gone, and they do not
// know that yet. The edge goes on by the version that it has, so its replacement waits for that.
func TestShorterStopWaitsForTheVersionOfTheEdge(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		const before, after = 20 * time.Minute, time.Minute
		r := &runs{}
		c := mustFleet(t, dir, r.countingObservers(), "edge-a", "edge-b")
		defer mustClose(t, c)
		version := func(stop time.Duration) *fleet.Job {
			job := service("signage", 1)
			job.TaskGroups[0].Disconnect = &fleet.Disconnect{StopOnClientAfter: &stop}
			validate.FillDefaults(job)
			return job
		}
		mustRun(t, c, version(before))
		id := mustOne(t, c, "signage")
		time.Sleep(time.Minute)

		a, _ := lead(t, c).State().View().Alloc(id)
		c.Net.Cut(fabric.Hosts(a.NodeName), fabric.Everyone, fabric.Both, fabric.Silent)
		cut := time.Now()
		mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": version(after)}, nil)
		mustCome(t, c, 10*time.Second, "the allocation has the new version", func(v *state.View) bool {
			a, _ := v.Alloc(id)
			n, _ := v.Node(a.NodeID)
			return a.JobVersion == 1 && n.Status == fleet.NodeReady
		})
		mustCome(t, c, before+10*time.Minute, "a replacement", func(v *state.View) bool {
			a, _ := v.Alloc(id)
			next, placed := v.Alloc(a.NextAllocation)
			return placed && next.ClientStatus == fleet.ClientRunning
		})
		if _, stopped := r.countsOfAlloc(id); stopped != 1 {
			t.Errorf("the replacement runs %s after the cut, and the task was stopped %d times", time.Since(cut), stopped)
		}
	})
}
