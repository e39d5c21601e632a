package scheduler_test

import (
	"testing"

	"skerry/fleet"
	"skerry/hub/scheduler"
	"skerry/hub/state"
	"skerry/reconcile"
)

// TestADryRunTellsAllThatIsDecided leaves out what is lost alone: what takes its place counts.
func TestADryRunTellsAllThatIsDecided(t *testing.T) {
	got := scheduler.DesiredUpdates(reconcile.GroupSummary{Place: 1, Stop: 2, Unknown: 3, Reconnect: 4, InPlace: 5, Destructive: 6, Canary: 7, Ignore: 8}, 9, 10)
	want := fleet.DesiredUpdates{Place: 1, Stop: 2, Disconnect: 3, Reconnect: 4, InPlaceUpdate: 5, DestructiveUpdate: 6, Canary: 7, Ignore: 8, NoNode: 9, AwaitsRoom: 10}
	if got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// TestAnEvaluationNamesTheRolloutThatFollows is what Nomad's CLI and Terraform wait for next:
// without it they take a rollout that fails for one that has succeeded.
func TestAnEvaluationNamesTheRolloutThatFollows(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(2)
	rolls := func(j *fleet.Job) { j.TaskGroups[0].Update = fleet.DefaultUpdate(fleet.JobTypeService) }
	first := c.registerAndSchedule(job(2, rolls))
	d := c.store.View().LatestDeployment(fleet.DefaultNamespace, "web")
	if d == nil || first.DeploymentID != d.ID {
		t.Fatalf("the evaluation names deployment %q, and not that of %+v", first.DeploymentID, d)
	}
	if u := first.PlanAnnotations.DesiredTGUpdates["web"]; u.Place != 2 || u.NoNode != 0 {
		t.Errorf("its plan changed %+v", u)
	}
	again := c.registerAndSchedule(job(2, rolls)) // nothing changes: the same rollout goes on
	if again.DeploymentID != d.ID || again.PlanAnnotations.DesiredTGUpdates["web"].Ignore != 2 {
		t.Errorf("registered as it is: deployment %q, %+v", again.DeploymentID, again.PlanAnnotations)
	}
}

// TestAnEvaluationNamesTheRolloutOfAnyRequest does the same for the other requests for which the CLI waits: a changed
// count and an older version begin a rollout, a stop of an allocation goes on with the newest.
func TestAnEvaluationNamesTheRolloutOfAnyRequest(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(3)
	rolls := func(j *fleet.Job) { j.TaskGroups[0].Update = fleet.DefaultUpdate(fleet.JobTypeService) }
	changed := func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"} }
	c.registerAndSchedule(job(2, rolls))
	c.registerAndSchedule(job(2, rolls, changed))
	newest := c.store.View().LatestDeployment(fleet.DefaultNamespace, "web")
	seen := map[fleet.DeploymentID]bool{newest.ID: true}
	c.mustApplyCommand(state.DeploymentStatus{Update: fleet.DeploymentUpdate{DeploymentID: newest.ID, Status: fleet.DeploymentSuccessful}, Now: c.now.UnixNano()})
	check := func(what string, e *fleet.Evaluation, begins bool) {
		t.Helper()
		d := c.store.View().LatestDeployment(fleet.DefaultNamespace, "web")
		if e.DeploymentID != d.ID || seen[d.ID] == begins {
			t.Errorf("%s: the evaluation names deployment %q; the newest is %q of version %d, begun before: %t", what, e.DeploymentID, d.ID, d.JobVersion, seen[d.ID])
		}
		seen[d.ID] = true
	}
	three := 3
	scaling := &fleet.Evaluation{ID: fleet.EvalID(c.newID()), TriggeredBy: fleet.TriggerScaling, Status: fleet.EvalPending}
	c.mustApplyCommand(state.JobScale{Namespace: fleet.DefaultNamespace, ID: "web", Group: "web", Count: &three, Eval: scaling, Now: c.now.UnixNano()})
	check("scaled", c.scheduleEval(scaling.ID), true)
	check("reverted", c.registerAndSchedule(job(2, rolls)), true)
	stops := c.mustApplyCommand(state.AllocStop{Allocs: []fleet.AllocID{c.nonTerminalAllocs()[0].ID}, EvalSeed: c.newID(), Now: c.now.UnixNano()})
	check("an allocation is stopped", c.scheduleEval(stops.Eval), false)
}

func TestAFailedPlacementSaysWhatItAsksFor(t *testing.T) {
	c := newCluster(t)
	c.addReadyNodes(1)
	big := func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU = 1 << 20 }
	e := c.registerAndSchedule(job(2, big))
	m := e.FailedTGAllocs["web"]
	if m == nil || m.ResourcesExhausted["main"].CPU != 1<<20 || m.NodePool != fleet.DefaultPool {
		t.Errorf("the failure is %+v", m)
	}
	if u := e.PlanAnnotations.DesiredTGUpdates["web"]; u.NoNode != 2 {
		t.Errorf("its plan changed %+v", u)
	}
	out, err := scheduler.DryRun(c.store.View(), job(1, big, func(j *fleet.Job) { j.ID = "other" }), c.now)
	if err != nil || len(out.Created) != 1 || out.Created[0].Status != fleet.EvalBlocked {
		t.Errorf("a dry run would make the evaluations %+v, %v", out.Created, err)
	}
}
