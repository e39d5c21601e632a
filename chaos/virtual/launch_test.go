package virtual_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/chaos/fabric"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
)

// A node launches a job with run_at_edge on time without a link, each time once, also if it reboots or its agent dies
// during a launch or between launches. The hubs get each launch and its end, in order, once the link is back.
func TestLaunchesWithoutALink(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-a")
		defer mustClose(t, c)
		job := batchOf("stock", "90s")
		job.Periodic = &fleet.Periodic{Enabled: true, Spec: "*/10 * * * *", ProhibitOverlap: true, RunAtEdge: true}
		validate.FillDefaults(job)
		mustRun(t, c, job)
		var id fleet.AllocID
		for a := range lead(t, c).State().View().AllocsByJob(fleet.DefaultNamespace, "stock") {
			id = a.ID
		}

		cut := c.Net.Cut(fabric.Hosts("edge-a"), fabric.Everyone, fabric.Both, fabric.Silent)
		first := time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute)
		launches := 0
		inLaunch := func() { // waits until a launch runs
			time.Sleep(time.Until(first.Add(time.Duration(launches)*10*time.Minute + 30*time.Second)))
			launches++
		}
		e := c.Edge("edge-a")
		reboot := func() error { return errors.Join(e.PowerCut(), e.Boot()) }
		restart := func() error { return errors.Join(e.Kill(), e.Start()) }
		for _, trouble := range []func() error{reboot, restart} {
			inLaunch()
			if err := trouble(); err != nil {
				t.Fatal(err)
			}
			inLaunch()
			time.Sleep(5 * time.Minute) // the launch is over
			if err := trouble(); err != nil {
				t.Fatal(err)
			}
		}
		inLaunch()
		time.Sleep(5 * time.Minute)
		cut.Heal()
		mustCome(t, c, 4*time.Minute, "the hubs know of the last launch", func(v *state.View) bool {
			a, _ := v.Alloc(id)
			return strings.Contains(a.ClientDescription, "is over: complete") && a.ClientStatus == fleet.ClientRunning
		})

		var h api.HistoryAnswer
		mustDo(t, c, http.MethodGet, "/v1/allocation/"+string(id)+"/history", nil, &h)
		var began, want []string
		ended, started := 0, 0
		for _, entry := range h.Entries {
			row := entry.Transition
			if row == nil {
				continue
			}
			if at, ok := strings.CutPrefix(row.Message, "launched for "); ok {
				began = append(began, at)
			}
			if strings.Contains(row.Message, "is over: complete") {
				ended++
			}
			if row.Event != nil && row.Event.Type == fleet.TaskStarted {
				started++
			}
		}
		for i := range launches {
			want = append(want, first.Add(time.Duration(i)*10*time.Minute).UTC().Format(time.RFC3339))
		}
		if !slices.Equal(began, want) || ended != launches {
			t.Errorf("launched for %q, and %d are over; want %q", began, ended, want)
		}
		if started != launches+1 { // again after the reboot
			t.Errorf("its task was started %d times in %d launches, one of which a reboot interrupted", started, launches)
		}
		if n := len(childrenOf(lead(t, c).State().View(), "stock")); n != 0 {
			t.Errorf("the hubs launched %d children", n)
		}
	})
}
