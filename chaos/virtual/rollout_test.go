package virtual_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
	"skerry/chaos/virtual"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub"
	"skerry/hub/state"
)

// perSite is how much of a site a rollout may put out of service at once.
const perSite = 2

// everywhere is a system job that is rolled out by sites.
func everywhere(id fleet.JobID, version int, waitFor string) *fleet.Job {
	job := service(id, 0)
	job.Type = fleet.JobTypeSystem
	g := &job.TaskGroups[0]
	g.Count, g.ReschedulePolicy, g.Migrate = 1, nil, nil
	g.Update = &fleet.Update{
		MaxParallel: 20, MaxUnavailablePerSite: perSite, HealthCheck: fleet.HealthTaskStates, WaitFor: waitFor,
		MinHealthyTime: 5 * time.Second, HealthyDeadline: time.Minute, ProgressDeadline: 3 * time.Minute,
	}
	g.Tasks[0].Env = map[string]string{"VERSION": strconv.Itoa(version)}
	validate.FillDefaults(job)
	return job
}

// rolloutWatch sees every entry, as the first hub that applies it does, and judges what
// must hold in each: budgets of sites, and that nothing old is begun.
type rolloutWatch struct {
	mu    sync.Mutex
	seen  fleet.Index
	armed bool // the first version is everywhere
	sites map[fleet.NodeID]string
	ready map[fleet.NodeID]fleet.Index // since when
	wrong []string
	most  int // out of service at one site
	ended map[fleet.DeploymentID]int
}

func (w *rolloutWatch) checkApplied(_ string, a hub.Applied) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Index <= w.seen {
		return
	}
	w.seen = a.Index
	if !w.armed {
		return
	}
	for n := range a.View.Nodes("") {
		if _, was := w.ready[n.ID]; n.Status != fleet.NodeReady {
			delete(w.ready, n.ID)
		} else if !was {
			w.ready[n.ID] = a.Index
		}
	}
	for j := range a.View.Jobs(fleet.DefaultNamespace, "") {
		w.checkSiteBudgets(a, j)
	}
	for d := range a.View.Deployments(fleet.DefaultNamespace, "") {
		if d.ModifyIndex == a.Index && d.Status == fleet.DeploymentSuccessful && d.JobVersion > 0 {
			w.ended[d.ID]++
			w.checkCompletion(a, d)
		}
	}
}

func (w *rolloutWatch) recordFailure(a hub.Applied, format string, args ...any) {
	if len(w.wrong) < 10 {
		w.wrong = append(w.wrong, fmt.Sprintf("entry %d: ", a.Index)+fmt.Sprintf(format, args...))
	}
}

// checkSiteBudgets counts, by site, the nodes within reach on which nothing of a job is in
// service: neither an older version that runs, nor the newest one that is healthy.
func (w *rolloutWatch) checkSiteBudgets(a hub.Applied, j *fleet.Job) {
	serves := map[fleet.NodeID]bool{}
	for al := range a.View.AllocsByJob(j.Namespace, j.ID) {
		runs := al.DesiredStatus == fleet.DesiredRun && al.ClientStatus == fleet.ClientRunning
		serves[al.NodeID] = serves[al.NodeID] || runs && al.DeploymentStatus.IsHealthy()
		if al.CreateIndex == a.Index && al.JobVersion != j.Version {
			w.recordFailure(a, "job %s: version %d is begun, the newest is %d", j.ID, al.JobVersion, j.Version)
		}
	}
	out := map[string]int{}
	for id, ok := range serves {
		if n, known := a.View.Node(id); known && n.Status == fleet.NodeReady && !ok {
			out[w.sites[id]]++
		}
	}
	for site, n := range out {
		w.most = max(w.most, n)
		if n > perSite {
			w.recordFailure(a, "job %s: %d out of service at site %s", j.ID, n, site)
		}
	}
}

// checkCompletion checks a deployment that ends: as wait_for says of what was within reach when
// that was decided. Who came back between the decision and its entry begins another one.
func (w *rolloutWatch) checkCompletion(a hub.Applied, d *fleet.Deployment) {
	n := rolloutProgressOf(a.View, d.JobID, d.JobVersion)
	decided, all, late := decidedAt(a), len(w.sites), 0
	for _, since := range w.ready {
		if since > decided {
			late++
		}
	}
	needs := map[string]int{"reachable": n.healthy + n.old - late, "95%": (all*95 + 99) / 100, "all": all}[d.TaskGroups["g"].WaitFor]
	if n.healthy < needs {
		w.recordFailure(a, "the deployment of job %s, decided at entry %d, ends with %+v, wants %d", d.JobID, decided, n, needs)
	}
}

// decidedAt is the newest entry that the decision had seen of which an entry is the plan.
func decidedAt(a hub.Applied) fleet.Index {
	if plan, ok := a.Command.(state.Plan); ok {
		for _, e := range plan.Evals {
			if e.ID == plan.EvalID {
				return e.SnapshotIndex
			}
		}
	}
	return a.Index
}

func (w *rolloutWatch) startChecking(v *state.View) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed, w.sites, w.ended = true, map[fleet.NodeID]string{}, map[fleet.DeploymentID]int{}
	w.ready = map[fleet.NodeID]fleet.Index{}
	for n := range v.Nodes("") {
		w.sites[n.ID] = n.SiteName()
		if n.Status == fleet.NodeReady {
			w.ready[n.ID] = v.Index()
		}
	}
}

// reportFailures reports what was wrong, and checks that the watch was not idle.
func (w *rolloutWatch) reportFailures(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.wrong {
		t.Error(s)
	}
	if w.most != perSite {
		t.Errorf("%d at most were out of service at a site: the budget of %d was never used", w.most, perSite)
	}
	for id, n := range w.ended {
		if n != 1 {
			t.Errorf("deployment %s ended %d times", id, n)
		}
	}
}

// rolloutProgress is how far a version of a system job is: nodes where it is healthy, within
// reach where it is not, and away.
type rolloutProgress struct{ healthy, old, away int }

func rolloutProgressOf(v *state.View, job fleet.JobID, version uint64) rolloutProgress {
	var s rolloutProgress
	for al := range v.AllocsByJob(fleet.DefaultNamespace, job) {
		switch {
		case al.DesiredStatus != fleet.DesiredRun:
		case al.ClientStatus == fleet.ClientUnknown:
			s.away++
		case al.JobVersion == version && al.DeploymentStatus.IsHealthy():
			s.healthy++
		default:
			s.old++
		}
	}
	return s
}

// rolloutOf is a job's newest deployment; nil: none.
func rolloutOf(v *state.View, job fleet.JobID) *fleet.Deployment {
	return v.LatestDeployment(fleet.DefaultNamespace, job)
}

// TestRolloutOverAnAbsentFleet rolls two versions out over a hundred edges, of which
// thirty are away at first, come back in three waves, and five never do.
func TestRolloutOverAnAbsentFleet(t *testing.T) {
	dir := mustMemory(t)
	edges, sites, waves, never := 100, 10, []int{10, 8, 7}, 5
	if !whole() {
		edges, sites, waves, never = 20, 4, []int{2, 2, 1}, 1
	}
	absent := never
	for _, n := range waves {
		absent += n
	}
	synctest.Test(t, func(t *testing.T) {
		w := &rolloutWatch{}
		cfg := virtual.Config{
			Dir: dir, Hubs: []string{"hub-1", "hub-2", "hub-3"}, Seed: 1, Tuning: virtual.Stretched, RaftStreams: true,
			BackoffCap: 20 * time.Second, Taps: virtual.Observers{Applied: w.checkApplied},
		}
		var away []string
		for i := range edges {
			name := fmt.Sprintf("edge-%02d", i)
			cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: name, Datacenter: "dc1", Site: fmt.Sprintf("site-%d", i%sites)})
			if i < absent {
				away = append(away, name)
			}
		}
		c, err := virtual.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, c)
		mustCome(t, c, 5*time.Minute, "all edges are ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == edges })
		jobs := map[fleet.JobID]string{"kiosk": "reachable", "meter": "95%", "till": "all"}
		register := func(version int) {
			t.Helper()
			for id, waitFor := range jobs {
				mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": everywhere(id, version, waitFor)}, nil)
			}
		}
		each := func(within time.Duration, what string, ok func(v *state.View, id fleet.JobID) bool) {
			t.Helper()
			for id := range jobs {
				mustCome(t, c, within, fmt.Sprintf("job %s: %s", id, what), func(v *state.View) bool { return ok(v, id) })
			}
		}
		has := func(version uint64, healthy int) func(*state.View, fleet.JobID) bool {
			return func(v *state.View, id fleet.JobID) bool { return rolloutProgressOf(v, id, version).healthy == healthy }
		}
		// is checks the newest deployments' statuses, by job.
		is := func(kiosk, meter, till string) {
			t.Helper()
			time.Sleep(5 * time.Second) // for the decision that ends it
			v := lead(t, c).State().View()
			for id, status := range map[fleet.JobID]string{"kiosk": kiosk, "meter": meter, "till": till} {
				if d := rolloutOf(v, id); d == nil || d.Status != status {
					t.Errorf("job %s (wait_for %s): the deployment is %+v, wants %s; %+v", id, jobs[id], d, status, rolloutProgressOf(v, id, d.JobVersion))
				}
			}
		}

		register(0)
		each(10*time.Minute, "is everywhere", has(0, edges))
		is("successful", "successful", "successful")
		w.startChecking(lead(t, c).State().View())

		heal := map[string]*fabric.Fault{}
		for _, name := range away {
			heal[name] = c.Net.Cut(fabric.Hosts(name), fabric.Everyone, fabric.Both, fabric.Silent)
		}
		mustCome(t, c, 5*time.Minute, "all that shall be are away", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeDisconnected) == len(away) })

		register(1)
		each(5*time.Minute, "begins", func(v *state.View, id fleet.JobID) bool { return rolloutProgressOf(v, id, 1).healthy >= edges/5 })
		register(2) // in the middle
		each(20*time.Minute, "is wherever it can be", has(2, edges-absent))
		is("successful", "running", "running")
		time.Sleep(10 * time.Minute) // no deadline runs for those that are away
		is("successful", "running", "running")

		back := 0
		for i, wave := range waves {
			for _, name := range away[back : back+wave] {
				heal[name].Heal()
			}
			back += wave
			each(10*time.Minute, fmt.Sprintf("wave %d is up to date", i+1), has(2, edges-absent+back))
			meter := "running"
			if i == len(waves)-1 {
				meter = "successful" // with the last of 95 %
			}
			is("successful", meter, "running")
		}
		time.Sleep(10 * time.Minute)
		is("successful", "successful", "running")
		v := lead(t, c).State().View()
		for id := range jobs {
			if n := rolloutProgressOf(v, id, 2); n != (rolloutProgress{healthy: edges - never, away: never}) {
				t.Errorf("job %s: %+v in the end", id, n)
			}
		}
		w.reportFailures(t)
		for _, name := range away {
			mustHaveRun(t, v, c.Edge(name), jobs, slices.Index(away, name) < back)
		}
		for _, f := range heal {
			f.Heal()
		}
	})
}

// mustHaveRun checks what an edge that was away has ever run: the first version and,
// if it came back, the newest one, and nothing between.
func mustHaveRun(t *testing.T, v *state.View, e *virtual.Edge, jobs map[fleet.JobID]string, back bool) {
	t.Helper()
	want := []uint64{0}
	if back {
		want = append(want, 2)
	}
	ran := map[fleet.JobID][]uint64{}
	for al := range v.AllocsByNode(e.Agent().NodeID()) {
		ran[al.JobID] = append(ran[al.JobID], al.JobVersion)
	}
	for id := range jobs {
		if slices.Sort(ran[id]); !slices.Equal(ran[id], want) {
			t.Errorf("%s has run versions %v of job %s, wants %v", e.Name, ran[id], id, want)
		}
	}
}

func nodesThatAre(v *state.View, status fleet.NodeStatus) int {
	n := 0
	for node := range v.Nodes("") {
		if node.Status == status {
			n++
		}
	}
	return n
}

// TestRolloutSurvivesTheLeader kills the leader in the middle of a rollout: the next one
// goes on with the same deployment, keeps to its budgets and ends it once.
func TestRolloutSurvivesTheLeader(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		w := &rolloutWatch{}
		cfg := virtual.Config{
			Dir: dir, Hubs: []string{"hub-1", "hub-2", "hub-3"}, Seed: 1, Tuning: virtual.Stretched, Taps: virtual.Observers{Applied: w.checkApplied},
		}
		for i := range 12 {
			cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: fmt.Sprintf("edge-%02d", i), Datacenter: "dc1", Site: fmt.Sprintf("site-%d", i%3)})
		}
		c, err := virtual.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, c)
		register := func(version int) {
			t.Helper()
			mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": everywhere("till", version, "all")}, nil)
		}
		ended := func(v *state.View) bool {
			d := rolloutOf(v, "till")
			return d != nil && d.Status == fleet.DeploymentSuccessful
		}
		mustCome(t, c, 5*time.Minute, "all edges are ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 12 })
		register(0)
		mustCome(t, c, 5*time.Minute, "the first version is everywhere", ended)
		w.startChecking(lead(t, c).State().View())
		register(1)
		var rolling fleet.DeploymentID
		mustCome(t, c, 5*time.Minute, "it is in the middle", func(v *state.View) bool {
			rolling = rolloutOf(v, "till").ID
			n := rolloutProgressOf(v, "till", 1).healthy
			return n >= 4 && n < 12
		})
		mustFailOver(t, c)
		mustCome(t, c, 10*time.Minute, "it ends", func(v *state.View) bool { return rolloutProgressOf(v, "till", 1).healthy == 12 && ended(v) })
		time.Sleep(10 * time.Minute)
		v := lead(t, c).State().View()
		if d := rolloutOf(v, "till"); d.ID != rolling || d.Status != fleet.DeploymentSuccessful {
			t.Errorf("the deployment is %+v, and not %s", d, rolling)
		}
		allocs, rollouts := 0, 0
		for range v.AllocsByJob(fleet.DefaultNamespace, "till") {
			allocs++
		}
		for range v.DeploymentsByJob(fleet.DefaultNamespace, "till") {
			rollouts++
		}
		if allocs != 24 || rollouts != 2 {
			t.Errorf("%d allocations in %d deployments: something was done twice, or not", allocs, rollouts)
		}
		w.reportFailures(t)
	})
}

// D41: each allocation of a new version fails; what fails is replaced only as far as
// the deployment allows, which takes the job back: three failed, three run.
func TestRolloutThatFailsIsTakenBack(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-a")
		defer mustClose(t, c)
		job := service("web", 3)
		g := &job.TaskGroups[0]
		g.Update = &fleet.Update{
			MaxParallel: 3, HealthCheck: fleet.HealthTaskStates, AutoRevert: true,
			MinHealthyTime: 10 * time.Second, HealthyDeadline: time.Minute, ProgressDeadline: 5 * time.Minute,
		}
		g.RestartPolicy = &fleet.RestartPolicy{Interval: time.Minute, Delay: time.Second, Mode: "fail"}
		g.Tasks[0].RestartPolicy = g.RestartPolicy
		g.ReschedulePolicy = &fleet.ReschedulePolicy{Attempts: 0, Interval: time.Minute, Delay: 5 * time.Second, DelayFunction: "constant"}
		mustRun(t, c, job)
		over := func(status string) func(v *state.View) bool {
			return func(v *state.View) bool { d := rolloutOf(v, "web"); return d != nil && d.Status == status }
		}
		mustCome(t, c, time.Minute, "it is rolled out", over(fleet.DeploymentSuccessful))
		bad := service("web", 3)
		bad.TaskGroups[0] = *g
		bad.TaskGroups[0].Tasks = slices.Clone(g.Tasks)
		bad.TaskGroups[0].Tasks[0].Config = map[string]any{"run_for": "5s", "exit_code": 1}
		mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": bad}, nil)
		mustCome(t, c, 5*time.Minute, "the third version is what the first was", func(v *state.View) bool {
			j, _ := v.Job(fleet.DefaultNamespace, "web")
			return j.Version == 2 && over(fleet.DeploymentSuccessful)(v)
		})
		time.Sleep(10 * time.Minute)
		failed, running := 0, 0
		var statuses []string
		v := lead(t, c).State().View()
		for a := range v.AllocsByJob(fleet.DefaultNamespace, "web") {
			switch {
			case a.ClientStatus == fleet.ClientFailed && a.JobVersion == 1:
				failed++
			case a.ClientStatus == fleet.ClientRunning && a.DesiredStatus == fleet.DesiredRun && a.JobVersion != 1:
				running++
			}
		}
		for d := range v.DeploymentsByJob(fleet.DefaultNamespace, "web") {
			statuses = append(statuses, d.Status)
		}
		if failed != 3 || running != 3 || !slices.Equal(statuses, []string{"successful", "failed", "successful"}) {
			t.Errorf("D41: %d failed, %d running; deployments %v", failed, running, statuses)
		}
	})
}

// TestRolloutWaitsForASite has an edge go away in the middle of being updated, at a site
// that may lose no more: the others of the site are deferred with it, no deadline runs
// for them, and when it is back they follow.
func TestRolloutWaitsForASite(t *testing.T) {
	for waitFor, status := range map[string]string{"all": fleet.DeploymentRunning, "reachable": fleet.DeploymentSuccessful} {
		t.Run(waitFor, func(t *testing.T) {
			dir := mustMemory(t)
			synctest.Test(t, func(t *testing.T) { mustWaitForASite(t, dir, waitFor, status) })
		})
	}
}

// mustWaitForASite checks that meanwhile the deployment has the status.
func mustWaitForASite(t *testing.T, dir, waitFor, status string) {
	t.Helper()
	cfg := virtual.Config{Dir: dir, Hubs: []string{"hub-1"}, Seed: 1, Tuning: virtual.Stretched}
	for i, site := range []string{"north", "north", "north", "south"} {
		cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: fmt.Sprintf("edge-%d", i), Datacenter: "dc1", Site: site})
	}
	c, err := virtual.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, c)
	register := func(version int) {
		t.Helper()
		job := everywhere("till", version, waitFor)
		u := job.TaskGroups[0].Update
		u.MaxUnavailablePerSite, u.MinHealthyTime = 1, 20*time.Second
		mustDo(t, c, http.MethodPut, "/v1/jobs", map[string]any{"Job": job}, nil)
	}
	healthy := func(version uint64, n int) func(v *state.View) bool {
		return func(v *state.View) bool { return rolloutProgressOf(v, "till", version).healthy == n }
	}
	mustCome(t, c, 5*time.Minute, "all edges are ready", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeReady) == 4 })
	register(0)
	mustCome(t, c, 5*time.Minute, "the first version is everywhere", healthy(0, 4))
	register(1)
	var first fleet.NodeID
	mustCome(t, c, time.Minute, "the first of the north is on its way", func(v *state.View) bool {
		for a := range v.AllocsByJob(fleet.DefaultNamespace, "till") {
			if n, _ := v.Node(a.NodeID); a.JobVersion == 1 && a.ClientStatus == fleet.ClientRunning && n.Site == "north" {
				first = a.NodeID
			}
		}
		return first != ""
	})
	var cut *fabric.Fault
	for _, e := range c.Edges {
		if e.Agent().NodeID() == first {
			cut = c.Net.Cut(fabric.Hosts(e.Name), fabric.Everyone, fabric.Both, fabric.Silent)
		}
	}
	mustCome(t, c, 5*time.Minute, "it is away", func(v *state.View) bool { return nodesThatAre(v, fleet.NodeDisconnected) == 1 })
	time.Sleep(30 * time.Minute) // ten times the progress deadline
	v := lead(t, c).State().View()
	if d, n := rolloutOf(v, "till"), rolloutProgressOf(v, "till", 1); d.Status != status || d.JobVersion != 1 || n != (rolloutProgress{healthy: 1, old: 2, away: 1}) {
		t.Errorf("the deployment is %s (%s), %+v", d.Status, d.StatusDescription, n)
	}
	cut.Heal()
	mustCome(t, c, 10*time.Minute, "all follow", healthy(1, 4))
	mustCome(t, c, time.Minute, "it ends", func(v *state.View) bool {
		return rolloutOf(v, "till").Status == fleet.DeploymentSuccessful
	})
	rollouts := 0
	for range v.DeploymentsByJob(fleet.DefaultNamespace, "till") {
		rollouts++
	}
	if rollouts != 2 {
		t.Errorf("%d deployments while an edge was away, wants one of each version", rollouts)
	}
}
