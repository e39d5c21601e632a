package rollout_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/rollout"
	"skerry/hub/state"
)

// allocLookup finds allocations of a list.
func allocLookup(allocs []*fleet.Alloc) func(fleet.AllocID) (*fleet.Alloc, bool) {
	return func(id fleet.AllocID) (*fleet.Alloc, bool) {
		for _, a := range allocs {
			if a.ID == id {
				return a, true
			}
		}
		return nil, false
	}
}

// snapshotOfDeployment is the picture of a deployment with all allocations of its job; no node is away.
func snapshotOfDeployment(d *fleet.Deployment, job *fleet.Job, now time.Time, allocs ...*fleet.Alloc) rollout.DeploymentSnapshot {
	return rollout.DeploymentSnapshot{
		Deployment: d, Job: job, Progress: rollout.NewProgress(allocs...), Alloc: allocLookup(allocs), Now: now, NewEval: func() fleet.EvalID { return "e" },
		Whole:    func() []*fleet.Alloc { return allocs },
		Away:     func(fleet.NodeID) bool { return false },
		Awaited:  func(*fleet.Alloc) bool { return true },
		Waits:    func(string) bool { return false },
		Versions: func() []*fleet.Job { return nil },
	}
}

// What stood in for an allocation that was away, and was lost before that came back and
// failed, does not count as its replacement: nobody else would decide on the failure.
func TestWhatStoodInAndWasLostReplacesNothing(t *testing.T) {
	job := &fleet.Job{ID: "web", Namespace: fleet.DefaultNamespace, Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1}}}
	d := &fleet.Deployment{
		ID: "d", JobID: job.ID, Namespace: job.Namespace, Status: fleet.DeploymentRunning,
		TaskGroups: map[string]fleet.DeploymentState{"g": {DesiredTotal: 1}},
	}
	for status, fails := range map[string]bool{fleet.ClientLost: true, fleet.ClientRunning: false, fleet.ClientPending: false} {
		a := &fleet.Alloc{ID: "a", TaskGroup: "g", DeploymentID: d.ID, DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientFailed, NextAllocation: "b"}
		b := &fleet.Alloc{ID: "b", TaskGroup: "g", DeploymentID: d.ID, DesiredStatus: fleet.DesiredRun, ClientStatus: status, PreviousAllocation: "a"}
		step := rollout.Next(snapshotOfDeployment(d, job, time.Unix(1, 0), a, b))
		if c, ok := step.Command.(state.DeploymentStatus); ok != fails || ok && c.Update.Status != fleet.DeploymentFailed {
			t.Errorf("its stand-in is %s: %+v (%s), that it fails should be %t", status, step.Command, step.Why, fails)
		}
	}
}

// A deployment's deadline runs for what is not healthy, though as many as it wants were
// healthy one after the other.
func TestWhoWasHealthyAndIsReplacedDoesNotCountTwice(t *testing.T) {
	job := &fleet.Job{ID: "web", Namespace: fleet.DefaultNamespace, Type: fleet.JobTypeSystem, TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1}}}
	d := &fleet.Deployment{
		ID: "d", JobID: job.ID, Namespace: job.Namespace, Status: fleet.DeploymentRunning,
		TaskGroups: map[string]fleet.DeploymentState{"g": {
			DesiredTotal: 2, HealthyAllocs: 2, ProgressDeadline: time.Minute, RequireProgressBy: time.Unix(60, 0),
		}},
	}
	alloc := func(id fleet.AllocID, node fleet.NodeID, desired string, healthy bool) *fleet.Alloc {
		return &fleet.Alloc{
			ID: id, NodeID: node, TaskGroup: "g", DeploymentID: d.ID, DesiredStatus: desired, ClientStatus: fleet.ClientRunning,
			DeploymentStatus: &fleet.AllocDeployment{Healthy: &healthy},
		}
	}
	p := snapshotOfDeployment(d, job, time.Unix(59, 0),
		alloc("a", "n1", fleet.DesiredStop, true), alloc("b", "n1", fleet.DesiredRun, true), alloc("c", "n2", fleet.DesiredRun, false))
	if step := rollout.Next(p); step.Command != nil || !step.Until.Equal(time.Unix(60, 0)) {
		t.Errorf("before its deadline: %+v (%s), until %s", step.Command, step.Why, step.Until)
	}
	p.Now = time.Unix(60, 0)
	if c, ok := rollout.Next(p).Command.(state.DeploymentStatus); !ok || c.Update.Status != fleet.DeploymentFailed {
		t.Errorf("at its deadline: %+v", rollout.Next(p))
	}
}

// A retired allocation that failed does not fail its deployment, with or without a deadline.
func TestRetiredFailsNothing(t *testing.T) {
	for _, retired := range []bool{false, true} {
		for _, deadline := range []time.Duration{0, time.Minute} {
			job := &fleet.Job{ID: "web", Namespace: fleet.DefaultNamespace, Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{
				Name: "g", Count: 1, Update: &fleet.Update{MaxParallel: 1},
			}}}
			d := &fleet.Deployment{
				ID: "d", JobID: job.ID, Namespace: job.Namespace, Status: fleet.DeploymentRunning,
				TaskGroups: map[string]fleet.DeploymentState{"g": {DesiredTotal: 1, ProgressDeadline: deadline, RequireProgressBy: time.Unix(60, 0)}},
			}
			alloc := func(id fleet.AllocID, name, status string, healthy bool) *fleet.Alloc {
				return &fleet.Alloc{
					ID: id, Name: name, TaskGroup: "g", DeploymentID: d.ID, DesiredStatus: fleet.DesiredRun, ClientStatus: status,
					DeploymentStatus: &fleet.AllocDeployment{Healthy: &healthy},
				}
			}
			ended, runs := alloc("a", "web.g[1]", fleet.ClientFailed, false), alloc("b", "web.g[0]", fleet.ClientRunning, true)
			ended.Retired = retired
			c, ok := rollout.Next(snapshotOfDeployment(d, job, time.Unix(60, 0), ended, runs)).Command.(state.DeploymentStatus)
			if failed := ok && c.Update.Status == fleet.DeploymentFailed; failed == retired {
				t.Errorf("retired %v, a deadline of %s: failed %v", retired, deadline, failed)
			}
		}
	}
}

// Where people alone judge health, a failed allocation fails no deployment, and asks for no
// other attempt; that they say so does, and so does the progress deadline.
func TestHealthByHandDoesNotFailByItself(t *testing.T) {
	for check, fails := range map[string]bool{fleet.HealthManual: false, fleet.HealthChecks: true} {
		for _, deadline := range []time.Duration{0, time.Minute} {
			job := &fleet.Job{ID: "web", Namespace: fleet.DefaultNamespace, Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{
				Name: "g", Count: 1, Update: &fleet.Update{MaxParallel: 1, HealthCheck: check},
			}}}
			d := &fleet.Deployment{
				ID: "d", JobID: job.ID, Namespace: job.Namespace, Status: fleet.DeploymentRunning,
				TaskGroups: map[string]fleet.DeploymentState{"g": {DesiredTotal: 1, ProgressDeadline: deadline}},
			}
			a := &fleet.Alloc{ID: "a", TaskGroup: "g", DeploymentID: d.ID, DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientFailed}
			p := snapshotOfDeployment(d, job, time.Unix(1, 0), a)
			if step := rollout.Next(p); step.Command != nil != fails {
				t.Errorf("%s, deadline %s: %+v (%s), that it does something should be %t", check, deadline, step.Command, step.Why, fails)
			}
			no := false
			a.DeploymentStatus = &fleet.AllocDeployment{Healthy: &no}
			if c, ok := rollout.Next(p).Command.(state.DeploymentStatus); !ok || c.Update.Status != fleet.DeploymentFailed {
				t.Errorf("%s, deadline %s, said to be unhealthy: %+v", check, deadline, rollout.Next(p))
			}
		}
	}
}
