package state_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

const progressDeadline = 10 * time.Minute

// startDeployment begins the deployment of a job's newest version.
func (w *storeHarness) startDeployment(id fleet.JobID, change func(*fleet.DeploymentState)) *fleet.Deployment {
	w.Helper()
	j := w.getJob(id)
	s := fleet.DeploymentState{DesiredTotal: j.TaskGroups[0].Count, ProgressDeadline: progressDeadline}
	if change != nil {
		change(&s)
	}
	d := fleet.Deployment{
		ID: fleet.DeploymentID(w.nextTestID("deployment")), Namespace: j.Namespace, JobID: j.ID, JobVersion: j.Version,
		JobModifyIndex: j.JobModifyIndex, JobCreateIndex: j.CreateIndex, Status: fleet.DeploymentRunning,
		StatusDescription: fleet.DescRunning, TaskGroups: map[string]fleet.DeploymentState{"web": s},
	}
	w.mustApply(state.Plan{NewDeployment: &d, Evals: w.completedEvals(id), Now: w.nowNanos()})
	return w.getDeployment(d.ID)
}

func (w *storeHarness) getDeployment(id fleet.DeploymentID) *fleet.Deployment {
	w.Helper()
	d, ok := w.store.View().Deployment(id)
	if !ok {
		w.Fatalf("no deployment %s", id)
	}
	return d
}

// placeIn places an allocation of a deployment.
func (w *storeHarness) placeIn(d *fleet.Deployment, node fleet.NodeID, canary bool) *fleet.Alloc {
	w.Helper()
	a := w.newAllocOfJob(d.JobID, node)
	a.DeploymentID, a.DeploymentStatus = d.ID, &fleet.AllocDeployment{Canary: canary}
	w.mustApply(state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(a)}, Evals: w.completedEvals(d.JobID), Now: w.nowNanos()})
	return w.getAlloc(a.ID)
}

func healthTransition(a *fleet.Alloc, healthy bool) fleet.Transition {
	return fleet.Transition{Kind: fleet.TransitionHealth, Alloc: a.ID, Deployment: a.DeploymentID, Healthy: &healthy}
}

func (w *storeHarness) reportHealth(a *fleet.Alloc, healthy bool) {
	w.Helper()
	w.appendJournalRows(a.NodeID, healthTransition(a, healthy))
	if res := w.applyRowBatches(w.unappliedBatch(a.NodeID)); res[0].Code != "" {
		w.Fatalf("tell health: %+v", res[0])
	}
}

func (w *storeHarness) reportHealthy(a *fleet.Alloc)   { w.Helper(); w.reportHealth(a, true) }
func (w *storeHarness) reportUnhealthy(a *fleet.Alloc) { w.Helper(); w.reportHealth(a, false) }

func (w *storeHarness) webGroupState(d *fleet.Deployment) fleet.DeploymentState {
	w.Helper()
	return w.getDeployment(d.ID).TaskGroups["web"]
}

func TestDeploymentCountsWhatItsEdgesSay(t *testing.T) {
	t.Run("C31", func(t *testing.T) {
		w := newStoreHarness(t)
		n := w.addReadyNode("n1")
		w.registerJob(job("shop", fleet.JobTypeService, 2))
		d := w.startDeployment("shop", nil)
		if !w.webGroupState(d).RequireProgressBy.IsZero() {
			t.Fatal("there is a deadline before anything is placed")
		}
		w.moveClockForward(time.Minute)
		a, b := w.placeIn(d, n, false), w.placeIn(d, n, false)
		if got, want := w.webGroupState(d).RequireProgressBy, w.now.Add(progressDeadline); !got.Equal(want) {
			t.Fatalf("deadline %s, want %s", got, want)
		}
		w.moveClockForward(time.Minute)
		w.reportHealthy(a)
		s := w.webGroupState(d)
		if s.PlacedAllocs != 2 || s.HealthyAllocs != 1 || s.UnhealthyAllocs != 0 || !s.RequireProgressBy.Equal(w.now.Add(progressDeadline)) {
			t.Fatalf("%+v", s)
		}
		if st := w.getAlloc(a.ID).DeploymentStatus; !st.IsHealthy() || !st.Timestamp.Equal(w.now) || st.ModifyIndex != w.index {
			t.Fatalf("%+v", st)
		}
		w.reportHealthy(a) // said again
		w.reportUnhealthy(b)
		w.reportUnhealthy(a)
		if s := w.webGroupState(d); s.HealthyAllocs != 0 || s.UnhealthyAllocs != 2 || s.PlacedAllocs != 2 {
			t.Fatalf("%+v", s)
		}
		// A report about another deployment does not count for this one.
		stray := healthTransition(a, true)
		stray.Deployment = "another"
		w.appendJournalRows(n, stray)
		w.applyRowBatches(w.unappliedBatch(n))
		if s := w.webGroupState(d); s.HealthyAllocs != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// TestCanaryThatFailsAfterItWasHealthy lets a canary fail that was healthy, and its replacement become unhealthy. The
// deployment says so until another canary is healthy. HealthyAllocs, as in Nomad, goes on to count the one that was.
func TestCanaryThatFailsAfterItWasHealthy(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"with a deadline": progressDeadline, "without one": 0} {
		t.Run(name, func(t *testing.T) {
			w := newStoreHarness(t)
			n := w.addReadyNode("n1")
			w.registerJob(job("shop", fleet.JobTypeService, 1))
			d := w.startDeployment("shop", func(s *fleet.DeploymentState) { s.DesiredCanaries, s.ProgressDeadline = 1, deadline })
			want := func(when, description string, promotable bool, healthy int) {
				t.Helper()
				if got := w.getDeployment(d.ID).StatusDescription; got != description {
					t.Fatalf("%s: %q, want %q", when, got, description)
				}
				if got := w.webGroupState(d).HealthyAllocs; got != healthy {
					t.Fatalf("%s: %d healthy, want %d", when, got, healthy)
				}
				if !promotable {
					w.mustRefuse(fleet.CodeConflict, state.DeploymentPromote{DeploymentID: d.ID, Now: w.nowNanos()})
				}
			}
			first := w.placeIn(d, n, true)
			w.reportStatus(n, fleet.ClientRunning, first.ID)
			w.reportHealthy(first)
			want("it is healthy", fleet.DescNeedsPromotion, true, 1)
			before := w.getDeployment(d.ID).ModifyIndex
			w.reportStatus(n, fleet.ClientFailed, first.ID)
			want("it failed", fleet.DescFailedCanaries, false, 1)
			if w.getDeployment(d.ID).ModifyIndex == before {
				t.Error("the deployment changed, and its index did not")
			}
			second := w.placeIn(d, n, true)
			w.reportUnhealthy(second)
			want("its replacement is unhealthy", fleet.DescFailedCanaries, false, 1)
			if err := w.store.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil { // canaries are counted again
				t.Fatal(err)
			}
			for _, status := range []string{fleet.DeploymentPaused, fleet.DeploymentRunning} {
				w.mustApply(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: d.ID, Status: status}, Now: w.nowNanos()})
			}
			want("it is resumed", fleet.DescFailedCanaries, false, 1)
			third := w.placeIn(d, n, true)
			w.reportHealthy(third)
			want("another one is healthy", fleet.DescNeedsPromotion, true, 2)
			w.mustApply(state.DeploymentPromote{DeploymentID: d.ID, Now: w.nowNanos()})
			want("it is promoted", fleet.DescRunning, true, 2)
		})
	}
}

// An edge that was away neither fails a deployment nor is failed by it: when the edge is back, the progress deadline
// begins again.
func TestReturnGivesADeploymentTime(t *testing.T) {
	w := newStoreHarness(t)
	n := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	d := w.startDeployment("shop", nil)
	a := w.placeIn(d, n, false)
	w.reportStatus(n, fleet.ClientRunning, a.ID)
	w.missHeartbeats(n)
	w.markAllocsUnknown(a.ID)
	w.moveClockForward(time.Hour)
	w.openNextSession(n)
	if s := w.webGroupState(d); !s.RequireProgressBy.Equal(w.now.Add(progressDeadline)) || s.HealthyAllocs+s.UnhealthyAllocs != 0 {
		t.Fatalf("at %s: %+v", w.now, s)
	}
}

// The return of a node whose allocations are healthy does not move the progress deadline: a node that comes and goes
// would keep the deployment from ending for ever.
func TestReturnOfWhatIsHealthyGivesNoTime(t *testing.T) {
	w := newStoreHarness(t)
	n := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	d := w.startDeployment("shop", nil)
	a := w.placeIn(d, n, false)
	w.reportStatus(n, fleet.ClientRunning, a.ID)
	w.reportHealthy(a)
	by := w.now.Add(progressDeadline)
	w.moveClockForward(time.Minute)
	w.missHeartbeats(n)
	w.markAllocsUnknown(a.ID)
	w.moveClockForward(time.Minute)
	w.openNextSession(n)
	if s := w.webGroupState(d); !s.RequireProgressBy.Equal(by) || w.getAlloc(a.ID).ClientStatus != fleet.ClientRunning {
		t.Fatalf("it is %s, at %s: %+v", w.getAlloc(a.ID).ClientStatus, w.now, s)
	}
}

// The progress deadline of a group begins again if one of its healthy allocations ends by itself: the replacement has
// to become healthy too.
func TestEndOfAHealthyAllocationGivesTime(t *testing.T) {
	for name, test := range map[string]struct {
		ends  func(w *storeHarness, n fleet.NodeID, a *fleet.Alloc)
		gives bool
	}{
		"failed":   {ends: func(w *storeHarness, n fleet.NodeID, a *fleet.Alloc) { w.reportStatus(n, fleet.ClientFailed, a.ID) }, gives: true},
		"complete": {ends: func(w *storeHarness, n fleet.NodeID, a *fleet.Alloc) { w.reportStatus(n, fleet.ClientComplete, a.ID) }, gives: true},
		"lost": {ends: func(w *storeHarness, n fleet.NodeID, a *fleet.Alloc) {
			w.missHeartbeats(n)
			w.updateAllocs(w.allocsWithStatus(fleet.ClientLost, a.ID)...)
		}, gives: true},
		"stopped by the hub": {ends: func(w *storeHarness, n fleet.NodeID, a *fleet.Alloc) {
			w.updateAllocs(w.allocsToStop(a.ID)...)
			w.reportStatus(n, fleet.ClientComplete, a.ID)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStoreHarness(t)
			n := w.addReadyNode("n1")
			w.registerJob(job("shop", fleet.JobTypeService, 2))
			d := w.startDeployment("shop", nil)
			a := w.placeIn(d, n, false)
			w.reportStatus(n, fleet.ClientRunning, a.ID)
			w.reportHealthy(a)
			want := w.now.Add(progressDeadline)
			w.moveClockForward(time.Minute)
			if test.gives {
				want = w.now.Add(progressDeadline)
			}
			test.ends(w, n, a)
			if s := w.webGroupState(d); !s.RequireProgressBy.Equal(want) || !w.getAlloc(a.ID).ClientTerminal() {
				t.Fatalf("it is %s, the deadline is %s, not %s", w.getAlloc(a.ID).ClientStatus, s.RequireProgressBy, want)
			}
		})
	}
}

func TestPromotion(t *testing.T) {
	w := newStoreHarness(t)
	n := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 3))
	plain := w.startDeployment("shop", nil)
	promote := func(d *fleet.Deployment, groups ...string) state.DeploymentPromote {
		return state.DeploymentPromote{DeploymentID: d.ID, Groups: groups, Eval: w.newEvaluation(fleet.TriggerDeploymentWatcher), Now: w.nowNanos()}
	}
	w.mustRefuse(fleet.CodeInvalid, promote(plain))
	d := w.startDeployment("shop", func(s *fleet.DeploymentState) { s.DesiredCanaries = 2 })
	a, b := w.placeIn(d, n, true), w.placeIn(d, n, true)
	t.Run("C26", func(t *testing.T) {
		w.tb = t
		for _, healthy := range []string{"0/2", "1/2"} {
			res := w.mustRefuse(fleet.CodeConflict, promote(d))
			if want := `group "web" has ` + healthy + ` healthy allocations`; !strings.Contains(res.Err.Error(), want) {
				t.Fatalf("%v, want %q", res.Err, want)
			}
			if healthy == "0/2" {
				w.reportHealthy(a)
			}
		}
		w.mustRefuse(fleet.CodeInvalid, promote(d, "other"))
		w.mustRefuse(fleet.CodeNotFound, state.DeploymentPromote{DeploymentID: "none"})
		w.mustRefuse(fleet.CodeConflict, promote(plain)) // a newer one took its place
	})
	w.reportHealthy(b)
	w.moveClockForward(time.Minute)
	res := w.mustApply(promote(d, "web"))
	if s := w.webGroupState(d); !s.Promoted || len(s.PlacedCanaries) != 2 || !s.RequireProgressBy.Equal(w.now.Add(progressDeadline)) {
		t.Fatalf("%+v", s)
	}
	for _, id := range []fleet.AllocID{a.ID, b.ID} {
		if st := w.getAlloc(id).DeploymentStatus; st.Canary || !st.IsHealthy() {
			t.Fatalf("%s: %+v", id, st)
		}
	}
	if e, ok := w.store.View().Eval(res.Eval); !ok || e.DeploymentID != d.ID || e.JobID != "shop" {
		t.Fatalf("evaluation %+v", e)
	}
	w.mustRefuse(fleet.CodeInvalid, promote(d))
}

func TestDeploymentStatusEnds(t *testing.T) {
	w := newStoreHarness(t)
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	d := w.startDeployment("shop", nil)
	status := func(status string) state.DeploymentStatus {
		return state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: d.ID, Status: status}, Now: w.nowNanos()}
	}
	w.mustRefuse(fleet.CodeConflict, state.DeploymentDelete{IDs: []fleet.DeploymentID{d.ID}})
	w.mustApply(status(fleet.DeploymentPaused))
	t.Run("C50", func(t *testing.T) {
		w.tb = t
		w.mustApply(status(fleet.DeploymentSuccessful))
		w.registerJob(job("shop", fleet.JobTypeService, 2))
		versions := w.store.View().JobVersions(fleet.DefaultNamespace, "shop")
		if len(versions) != 2 || versions[0].Stable || !versions[1].Stable {
			t.Fatalf("stable: %v, %v", versions[0].Stable, versions[1].Stable)
		}
	})
	w.mustRefuse(fleet.CodeConflict, status(fleet.DeploymentRunning))
	w.mustRefuse(fleet.CodeConflict, state.AllocHealth{DeploymentID: d.ID})
	w.mustApply(state.DeploymentDelete{IDs: []fleet.DeploymentID{d.ID, "gone"}})
	if _, ok := w.store.View().Deployment(d.ID); ok {
		t.Fatal("it is still there")
	}
}

// An operator's word fails a deployment and takes the job back, in one entry.
func TestUnhealthyByHandTakesTheJobBack(t *testing.T) {
	w := newStoreHarness(t)
	n := w.addReadyNode("n1")
	first := job("shop", fleet.JobTypeService, 1)
	w.registerJob(first)
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	d := w.startDeployment("shop", nil)
	a := w.placeIn(d, n, false)
	w.mustRefuse(fleet.CodeInvalid, state.AllocHealth{DeploymentID: d.ID, Healthy: []fleet.AllocID{"other"}})
	res := w.mustApply(state.AllocHealth{
		DeploymentID: d.ID, Unhealthy: []fleet.AllocID{a.ID}, Rollback: first, Eval: w.newEvaluation(fleet.TriggerDeploymentWatcher), Now: w.nowNanos(),
		Update: &fleet.DeploymentUpdate{DeploymentID: d.ID, Status: fleet.DeploymentFailed, StatusDescription: fleet.DescRollback(fleet.DescFailedAllocations, 0)},
	})
	if j := w.getJob("shop"); j.Version != 2 || j.TaskGroups[0].Count != 1 || res.Version != 2 {
		t.Fatalf("version %d, count %d", j.Version, j.TaskGroups[0].Count)
	}
	if d := w.getDeployment(d.ID); d.Status != fleet.DeploymentFailed || d.TaskGroups["web"].UnhealthyAllocs != 1 {
		t.Fatalf("%+v", d)
	}
}

// A deployment remembers its newest changes, at most twice as many as it must, and knows the
// entry up to which it has forgotten them.
func TestDeploymentRemembersABoundedNumberOfChanges(t *testing.T) {
	for _, noted := range []int{1, state.ChangesKept, 5*state.ChangesKept + 7} {
		kept, forgotten := state.NoteChanges(noted)
		if kept < min(noted, state.ChangesKept) || kept > 2*state.ChangesKept || int(forgotten) != noted-kept {
			t.Errorf("of %d changes %d are remembered, those behind entry %d", noted, kept, forgotten)
		}
	}
}

// A change of an allocation wakes the watcher of its own rollout, and no other watcher.
func TestRolloutWakesForItsOwnAllocationsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStoreHarness(t)
		n := w.addReadyNode("n1")
		w.registerJob(job("shop", fleet.JobTypeService, 1))
		w.registerJob(job("till", fleet.JobTypeService, 1))
		shop, till := w.startDeployment("shop", nil), w.startDeployment("till", nil)
		a, b := w.placeIn(shop, n, false), w.placeIn(till, n, false)
		woken := func(change func()) bool {
			v := w.store.Watch()
			if _, _, ok := v.Rollout(shop.ID); !ok {
				t.Fatal("no rollout")
			}
			change()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := v.Changed(ctx)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			return err == nil
		}
		for _, c := range []struct {
			name   string
			change func()
			want   bool
		}{
			{"its allocation is healthy", func() { w.reportHealthy(a) }, true},
			{"its allocation runs", func() { w.reportStatus(n, fleet.ClientRunning, a.ID) }, true},
			{"an allocation of another", func() { w.reportHealthy(b) }, false},
			{"a task's event", func() {
				w.appendJournalRows(n, fleet.Transition{Kind: fleet.TransitionTask, Alloc: a.ID, Task: "web", Event: &fleet.TaskEvent{Type: "x"}})
				w.applyRowBatches(w.unappliedBatch(n))
			}, false},
			{"its own status", func() {
				w.mustApply(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: shop.ID, Status: fleet.DeploymentPaused}})
			}, true},
			{"another deployment's status", func() {
				w.mustApply(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: till.ID, Status: fleet.DeploymentPaused}})
			}, false},
			{"another deployment's beginning", func() { w.startDeployment("till", nil) }, false},
		} {
			if got := woken(c.change); got != c.want {
				t.Errorf("%s: woken %v, want %v", c.name, got, c.want)
			}
		}
	})
}

func TestDeploymentsAreListedByAge(t *testing.T) {
	t.Run("C56", func(t *testing.T) {
		w := newStoreHarness(t)
		w.registerJob(job("shop", fleet.JobTypeService, 1))
		w.registerJob(job("till", fleet.JobTypeService, 1))
		var want []fleet.DeploymentID
		for _, id := range []fleet.JobID{"shop", "till", "shop"} {
			want = append(want, w.startDeployment(id, nil).ID)
		}
		v := w.store.View()
		var got []fleet.DeploymentID
		for d := range v.Deployments("*", "") {
			got = append(got, d.ID)
		}
		if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Fatalf("%v, want %v", got, want)
		}
		if d := v.LatestDeployment(fleet.DefaultNamespace, "shop"); d.ID != want[2] {
			t.Fatalf("latest %s", d.ID)
		}
		if d := w.getDeployment(want[0]); d.Status != fleet.DeploymentCancelled || d.StatusDescription != fleet.DescNewerJob {
			t.Fatalf("%+v", d)
		}
		n := 0
		for d := range v.DeploymentsSince(w.getDeployment(want[0]).CreateIndex) {
			if n++; d.ID != want[n] {
				t.Fatalf("%s", d.ID)
			}
		}
		if n != 2 {
			t.Fatalf("%d since the first", n)
		}
	})
}

// A snapshot of a state without deployments has none after a restore.
func TestOldSnapshotHasNoDeployments(t *testing.T) {
	w := newStoreHarness(t)
	w.registerJob(job("shop", fleet.JobTypeService, 1))
	restored := state.New()
	if err := restored.Restore(bytes.NewReader(mustPersist(t, w.store))); err != nil {
		t.Fatal(err)
	}
	for d := range restored.View().Deployments("*", "") {
		t.Fatalf("%+v", d)
	}
}

// E10: a report of health changes only the health of an allocation: a canary stays a canary, and the time of the
// report moves the deadline.
func TestHealthLeavesTheCanaryFlag(t *testing.T) {
	w := newStoreHarness(t)
	n := w.addReadyNode("n1")
	w.registerJob(job("shop", fleet.JobTypeService, 2))
	d := w.startDeployment("shop", nil)
	a := w.placeIn(d, n, true)
	w.moveClockForward(time.Minute)
	w.reportHealthy(a)
	got := w.getAlloc(a.ID)
	if s := got.DeploymentStatus; !s.Canary || !s.IsHealthy() || got.ClientStatus != a.ClientStatus || got.DesiredStatus != a.DesiredStatus {
		t.Fatalf("%+v", got)
	}
	if want := w.now.Add(progressDeadline); !w.webGroupState(d).RequireProgressBy.Equal(want) {
		t.Fatalf("deadline %s, want %s", w.webGroupState(d).RequireProgressBy, want)
	}
}
