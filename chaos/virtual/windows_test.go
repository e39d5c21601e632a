package virtual_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/chaos/fabric"
	"skerry/chaos/virtual"
	"skerry/fleet"

	"skerry/hub/state"
)

// kolkata is half an hour off the full hour: a window that opens at every full hour opens
// there at half past, UTC.
const kolkata = "Asia/Kolkata"

// TestWindowsOfUpdates rolls a version out over edges in two time zones. Of those in UTC one
// is out of reach when its window opens, and gets its update in the next one. Of those in
// Kolkata one hears of its update when its window has closed again, holds it back over an
// agent's death, and begins it by itself when the next one opens, out of reach.
func TestWindowsOfUpdates(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, dir)
		defer mustClose(t, w.c)
		w.sleepUntil(12 * time.Minute) // no window is open
		away := w.cutEdgeOff("utc-1")
		w.sleepUntil(20 * time.Minute)
		w.registerTillJob(1)
		w.sleepUntil(29 * time.Minute)
		w.checkRunningVersion(0, "utc-0", "utc-1", "kolkata-0", "kolkata-1")
		w.checkDeferred(3, 30*time.Minute)
		w.checkDeployments(0, 1)

		late := w.tellLate("kolkata-1", func() {
			w.checkRunningVersion(1, "kolkata-0")
			w.checkRunningVersion(0, "utc-0", "utc-1", "kolkata-1")
		})
		edge := w.c.Edge("kolkata-1")
		if err := edge.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := edge.Start(); err != nil {
			t.Fatal(err)
		}

		w.sleepUntil(69 * time.Minute)
		w.checkRunningVersion(1, "utc-0", "kolkata-0")
		w.sleepUntil(75 * time.Minute)
		away.Heal() // its window has closed
		w.sleepUntil(89 * time.Minute)
		w.checkRunningVersion(0, "utc-1", "kolkata-1")
		w.sleepUntil(95 * time.Minute)
		w.checkRunningVersion(1, "kolkata-1") // by itself
		w.checkRunningVersion(0, "utc-1")
		late.Heal()
		w.sleepUntil(119 * time.Minute)
		w.checkRunningVersion(0, "utc-1")
		w.checkDeferred(1, 120*time.Minute)
		w.checkDeployments(0, 1)
		if d := rolloutOf(w.leaderView(), "till"); d.Status != fleet.DeploymentRunning {
			t.Fatalf("the deployment is %s: %s", d.Status, d.StatusDescription)
		}
		w.sleepUntil(129 * time.Minute)
		w.checkRunningVersion(1, "utc-0", "utc-1", "kolkata-0", "kolkata-1")
		w.checkDeployments(1) // nothing is left of the first one, which was over an hour ago: it is collected
		if d := rolloutOf(w.leaderView(), "till"); d.Status != fleet.DeploymentSuccessful {
			t.Errorf("the deployment is %s: %s", d.Status, d.StatusDescription)
		}
		if n := len(w.windowEvalTimes()); n > 8 {
			t.Errorf("%d evaluations were to wait for windows: %v", n, w.windowEvalTimes())
		}
	})
}

// TestARebootedEdgeWaitsForTheTime holds an update back over a reboot without a link: for
// how long the machine was off nobody knows, so it begins nothing until a hub says what time
// it is.
func TestARebootedEdgeWaitsForTheTime(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, dir)
		defer mustClose(t, w.c)
		w.sleepUntil(15 * time.Minute)
		w.registerTillJob(1)
		cut := w.tellLate("kolkata-1", func() {})
		edge := w.c.Edge("kolkata-1")
		if err := edge.PowerCut(); err != nil {
			t.Fatal(err)
		}
		if err := edge.Boot(); err != nil {
			t.Fatal(err)
		}
		w.sleepUntil(95 * time.Minute) // in its next window
		w.checkRunningVersion(0, "kolkata-1")
		cut.Heal()
		w.sleepUntil(99 * time.Minute)
		w.checkRunningVersion(1, "kolkata-1")
	})
}

// windowed is a fleet in two time zones with a system job.
type windowed struct {
	*testing.T
	c     *virtual.Cluster
	began time.Time // a full hour
}

// begin starts such a fleet, on which the first version runs everywhere.
func begin(t *testing.T, dir string) *windowed {
	t.Helper()
	w := &windowed{T: t}
	w.startCluster(dir)
	w.registerTillJob(0)
	mustCome(t, w.c, 5*time.Minute, "the first version is everywhere", func(v *state.View) bool { return rolloutProgressOf(v, "till", 0).healthy == 4 })
	return w
}

// tellLate has an edge of the south hear of its update when its window has closed again, and
// hold it back. Then it is out of reach, until the fault heals.
func (w *windowed) tellLate(name string, meanwhile func()) *fabric.Fault {
	w.Helper()
	w.sleepUntil(29*time.Minute + 58*time.Second)
	cut := w.cutEdgeOff(name) // too short for a missed deadline when the window opens
	w.sleepUntil(39 * time.Minute)
	meanwhile()
	w.sleepUntil(41 * time.Minute)
	cut.Heal()
	w.sleepUntil(50 * time.Minute)
	w.checkUpdatePending(name)
	return w.cutEdgeOff(name)
}

func (w *windowed) startCluster(dir string) {
	w.Helper()
	cfg := virtual.Config{Dir: dir, Hubs: []string{"hub-1"}, Seed: 1, Tuning: virtual.Stretched, BackoffCap: 10 * time.Second}
	for _, name := range []string{"utc-0", "utc-1"} {
		cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: name, Datacenter: "dc1", Site: "north"})
	}
	for _, name := range []string{"kolkata-0", "kolkata-1"} {
		cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: name, Datacenter: "dc1", Site: "south", TimeZone: kolkata})
	}
	c, err := virtual.Start(w.Context(), cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.c, w.began = c, time.Now().Truncate(time.Hour)
	mustCome(w.T, c, 5*time.Minute, "all edges are ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 4 })
}

func (w *windowed) registerTillJob(version int) {
	w.Helper()
	job := everywhere("till", version, "all")
	u := job.TaskGroups[0].Update
	u.MaxUnavailablePerSite = 0
	u.Windows = []fleet.UpdateWindow{{Cron: "0 * * * *", Duration: 10 * time.Minute}}
	mustDo(w.T, w.c, http.MethodPut, "/v1/jobs", map[string]any{"Job": job}, nil)
}

// sleepUntil lets time pass until so long after the beginning.
func (w *windowed) sleepUntil(d time.Duration) {
	time.Sleep(time.Until(w.began.Add(d)))
}

func (w *windowed) cutEdgeOff(name string) *fabric.Fault {
	return w.c.Net.Cut(fabric.Hosts(name), fabric.Everyone, fabric.Both, fabric.Silent)
}

func (w *windowed) leaderView() *state.View { return lead(w.T, w.c).State().View() }

// checkRunningVersion checks which version, and no other, runs on edges, as these say themselves.
func (w *windowed) checkRunningVersion(version uint64, names ...string) {
	w.Helper()
	for _, name := range names {
		s, err := w.c.Edge(name).Agent().Agent().Status(context.Background())
		if err != nil {
			w.Fatal(err)
		}
		n := 0
		for _, a := range s.Allocs {
			if a.ClientStatus != fleet.ClientRunning {
				continue
			}
			if n++; a.JobVersion != version {
				w.Errorf("%s after %s: version %d runs, wants %d", name, time.Since(w.began), a.JobVersion, version)
			}
		}
		if n != 1 {
			w.Errorf("%s after %s: %d allocations run: %+v", name, time.Since(w.began), n, s.Allocs)
		}
	}
}

// checkUpdatePending checks that an edge has an update that it has not begun.
func (w *windowed) checkUpdatePending(name string) {
	w.Helper()
	s, err := w.c.Edge(name).Agent().Agent().Status(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	waits := 0
	for _, a := range s.Allocs {
		if a.Note != "" {
			waits++
		}
	}
	if waits != 2 {
		w.Fatalf("%s does not hold an update back: %+v", name, s.Allocs)
	}
	w.checkRunningVersion(0, name)
}

// checkDeployments checks that there is one of each of these versions, and no other.
func (w *windowed) checkDeployments(versions ...uint64) {
	w.Helper()
	var got []uint64
	for d := range w.leaderView().DeploymentsByJob(fleet.DefaultNamespace, "till") {
		got = append(got, d.JobVersion)
	}
	if slices.Sort(got); !slices.Equal(got, versions) {
		w.Errorf("after %s there are deployments of versions %v, wants one of each of %v", time.Since(w.began), got, versions)
	}
}

// checkDeferred checks how much waits for windows, and when the next one opens, as the API says.
func (w *windowed) checkDeferred(n int, opens time.Duration) {
	w.Helper()
	d := rolloutOf(w.leaderView(), "till")
	var detail api.DeploymentDetail
	var progress api.Progress
	mustDo(w.T, w.c, http.MethodGet, "/v1/deployment/"+string(d.ID), nil, &detail)
	mustDo(w.T, w.c, http.MethodGet, "/v1/deployment/progress/"+string(d.ID), nil, &progress)
	at := w.began.Add(opens)
	for _, said := range []map[string]api.WindowProgress{detail.Windows, progress.Windows} {
		if p := said[rolloutGroup(d)]; p.Deferred != n || p.Opens == nil || !p.Opens.Equal(at) {
			w.Errorf("after %s %d are deferred until %v, wants %d until %s", time.Since(w.began), p.Deferred, p.Opens, n, at)
		}
	}
	if shut := progress.Total(rolloutGroup(d)).Shut; shut != n {
		w.Errorf("%d are shut at all sites, wants %d", shut, n)
	}
}

func rolloutGroup(d *fleet.Deployment) string { return d.Groups()[0] }

// windowEvalTimes are the evaluations that waited for a window.
func (w *windowed) windowEvalTimes() []time.Time {
	var at []time.Time
	for e := range w.leaderView().EvalsByJob(fleet.DefaultNamespace, "till") {
		if e.TriggeredBy == fleet.TriggerUpdateWindow {
			at = append(at, e.WaitUntil)
		}
	}
	return at
}
