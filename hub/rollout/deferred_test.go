package rollout_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/rollout"
	"skerry/hub/state"
)

// overdueDeployment is a deployment of version 1 that wants two of a group and whose deadline was
// over a second ago.
type overdueDeployment struct {
	job         *fleet.Job
	dep         *fleet.Deployment
	unreachable map[fleet.NodeID]bool
	allocs      []*fleet.Alloc
	// nothingLeft: nothing of it is left to do, so that it has no deadline.
	nothingLeft bool
}

func newOverdueDeployment(jobType string) *overdueDeployment {
	job := &fleet.Job{
		ID: "web", Namespace: fleet.DefaultNamespace, Type: jobType, Version: 1,
		TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 2, ReschedulePolicy: &fleet.ReschedulePolicy{Unlimited: true}}},
	}
	return &overdueDeployment{job: job, unreachable: map[fleet.NodeID]bool{}, dep: &fleet.Deployment{
		ID: "d", JobID: job.ID, JobVersion: 1, Namespace: job.Namespace, Status: fleet.DeploymentRunning,
		TaskGroups: map[string]fleet.DeploymentState{"g": {DesiredTotal: 2, ProgressDeadline: time.Hour, RequireProgressBy: time.Unix(3600, 0)}},
	}}
}

// addAlloc adds an allocation of the deployment, named and placed as its id says.
func (o *overdueDeployment) addAlloc(id fleet.AllocID, status string, healthy bool, change func(*fleet.Alloc)) {
	a := &fleet.Alloc{
		ID: id, Name: string(id), NodeID: fleet.NodeID(id), TaskGroup: "g", JobVersion: 1, DeploymentID: o.dep.ID,
		DesiredStatus: fleet.DesiredRun, ClientStatus: status, DeploymentStatus: &fleet.AllocDeployment{},
	}
	if healthy {
		a.DeploymentStatus.Healthy = &healthy
	}
	if change != nil {
		change(a)
	}
	o.allocs = append(o.allocs, a)
}

func (o *overdueDeployment) nextStep() rollout.Step {
	var own []*fleet.Alloc
	for _, a := range o.allocs {
		if a.DeploymentID == o.dep.ID {
			own = append(own, a)
		}
	}
	p := snapshotOfDeployment(o.dep, o.job, time.Unix(3601, 0), o.allocs...)
	p.Progress = rollout.NewProgress(own...)
	p.Away = func(id fleet.NodeID) bool { return o.unreachable[id] }
	p.Site = func(fleet.NodeID) string { return "" }
	return rollout.Next(p)
}

// previousVersionBack makes an allocation one of the version before, which is back since a time.
func previousVersionBack(back time.Time) func(*fleet.Alloc) {
	return func(a *fleet.Alloc) {
		a.JobVersion, a.DeploymentID, a.DeploymentStatus = 0, "", nil
		a.AllocStates = []fleet.AllocState{{Field: fleet.AllocStateClientStatus, Value: fleet.ClientUnknown, Time: back.Add(-time.Hour)}}
		if !back.IsZero() {
			a.AllocStates = append(a.AllocStates, fleet.AllocState{Field: fleet.AllocStateClientStatus, Value: fleet.ClientRunning, Time: back})
		}
	}
}

// When the time of a deployment is over it fails, unless all that is left is away or came
// back only just; and where it does not fail, it is looked at again.
func TestOverdue(t *testing.T) {
	asked := func(a *fleet.Alloc) { a.DesiredTransition.Reschedule = true }
	canary := func(a *fleet.Alloc) { a.DeploymentStatus.Canary = true }
	for name, test := range map[string]struct {
		system bool
		make   func(o *overdueDeployment)
		fails  bool
	}{
		"what was healthy and failed since is missing": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientFailed, true, asked)
		}, fails: true},
		"what was healthy and ended since is missing": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientComplete, true, nil)
		}, fails: true},
		"what failed after an earlier deployment of the version is not": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientFailed, true, func(a *fleet.Alloc) { a.DeploymentID = "earlier" })
		}},
		"nor what is away": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientUnknown, false, nil)
		}},
		"nor what is about to be unknown": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientRunning, false, nil)
			o.unreachable["b"] = true
		}},
		"what failed on an edge that is away is missing": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientFailed, false, asked)
			o.unreachable["b"] = true
		}, fails: true},
		"but not of a system job, which starts it anew there": {system: true, make: func(o *overdueDeployment) {
			no := false
			o.addAlloc("b", fleet.ClientFailed, false, func(a *fleet.Alloc) { a.DeploymentStatus.Healthy = &no })
			o.unreachable["b"] = true
		}},
		"in sight it is": {system: true, make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientFailed, true, nil)
		}, fails: true},
		"what was placed after an earlier deployment and runs is not": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientRunning, false, func(a *fleet.Alloc) { a.DeploymentID, a.DeploymentStatus = "", nil })
		}},
		"an older version is, though a node that came later makes up the number": {system: true, make: func(o *overdueDeployment) {
			o.addAlloc("later", fleet.ClientRunning, true, nil)
			o.addAlloc("b", fleet.ClientRunning, false, func(a *fleet.Alloc) { a.JobVersion, a.DeploymentID = 0, "" })
		}, fails: true},
		"nor does it hide one that failed": {system: true, make: func(o *overdueDeployment) {
			o.addAlloc("later", fleet.ClientRunning, true, nil)
			o.addAlloc("b", fleet.ClientFailed, false, func(a *fleet.Alloc) { a.JobVersion, a.DeploymentID = 0, "" })
		}, fails: true},
		"nor one that made room for what finds none": {system: true, make: func(o *overdueDeployment) {
			o.addAlloc("later", fleet.ClientRunning, true, nil)
			o.addAlloc("b", fleet.ClientComplete, false, func(a *fleet.Alloc) {
				a.JobVersion, a.DeploymentID, a.DesiredStatus, a.AllocModifyIndex = 0, "", fleet.DesiredStop, 2
			})
		}, fails: true},
		"but one that was stopped before": {system: true, make: func(o *overdueDeployment) {
			o.addAlloc("later", fleet.ClientRunning, true, nil)
			o.addAlloc("b", fleet.ClientComplete, false, func(a *fleet.Alloc) {
				a.JobVersion, a.DeploymentID, a.DesiredStatus, a.AllocModifyIndex = 0, "", fleet.DesiredStop, 0
			})
			o.nothingLeft = true
		}},
		"what made room on an edge that is away is not": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientRunning, false, func(a *fleet.Alloc) {
				a.JobVersion, a.DeploymentID, a.DesiredStatus, a.AllocModifyIndex = 0, "", fleet.DesiredStop, 2
			})
			o.unreachable["b"] = true
		}},
		"nor the one beside it at a site that may lose no more": {system: true, make: func(o *overdueDeployment) {
			o.job.TaskGroups[0].Update = &fleet.Update{MaxUnavailablePerSite: 1}
			o.addAlloc("b", fleet.ClientLost, false, func(a *fleet.Alloc) {
				a.JobVersion, a.DeploymentID, a.DesiredStatus, a.AllocModifyIndex = 0, "", fleet.DesiredStop, 2
			})
			o.addAlloc("later", fleet.ClientRunning, false, func(a *fleet.Alloc) { a.JobVersion, a.DeploymentID = 0, "" })
			o.unreachable["b"] = true
		}},
		"not where its edge is away": {system: true, make: func(o *overdueDeployment) {
			o.addAlloc("later", fleet.ClientRunning, true, nil)
			o.addAlloc("b", fleet.ClientUnknown, false, func(a *fleet.Alloc) { a.JobVersion, a.DeploymentID = 0, "" })
			o.nothingLeft = true
		}},
		"an older version whose return is not dealt with": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientRunning, false, func(a *fleet.Alloc) { previousVersionBack(time.Time{})(a) })
		}},
		"an older version that came back a minute ago": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientRunning, false, previousVersionBack(time.Unix(3541, 0)))
		}},
		"and was stopped for want of room": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientComplete, false, func(a *fleet.Alloc) { previousVersionBack(time.Unix(3541, 0))(a); a.DesiredStatus = fleet.DesiredStop })
		}},
		"an older version that came back more than an hour ago": {make: func(o *overdueDeployment) {
			o.addAlloc("b", fleet.ClientRunning, false, previousVersionBack(time.Unix(0, 0)))
		}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOverdueDeployment(fleet.JobTypeService)
			if test.system {
				o = newOverdueDeployment(fleet.JobTypeSystem)
			}
			o.addAlloc("a", fleet.ClientRunning, true, nil)
			test.make(o)
			o.checkNextStep(t, test.fails)
		})
	}
	for name, test := range map[string]struct {
		status string
		away   bool
		fails  bool
	}{
		"a canary that is away":  {fleet.ClientUnknown, true, false},
		"one that has not begun": {fleet.ClientPending, false, true},
		"one that failed":        {fleet.ClientFailed, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOverdueDeployment(fleet.JobTypeService)
			s := o.dep.TaskGroups["g"]
			s.DesiredCanaries = 2
			o.dep.TaskGroups["g"] = s
			for _, id := range []fleet.AllocID{"a", "b"} {
				o.addAlloc(id, fleet.ClientRunning, false, func(a *fleet.Alloc) { a.JobVersion, a.DeploymentID = 0, "" })
			}
			o.addAlloc("c", fleet.ClientRunning, true, canary)
			o.addAlloc("d", test.status, false, func(a *fleet.Alloc) { canary(a); asked(a) })
			o.unreachable["d"] = test.away
			o.checkNextStep(t, test.fails)
		})
	}
}

func (o *overdueDeployment) checkNextStep(t *testing.T, fails bool) {
	t.Helper()
	o.dep.CreateIndex = 1
	step := o.nextStep()
	c, ok := step.Command.(state.DeploymentStatus)
	switch {
	case ok != fails || ok && c.Update.Status != fleet.DeploymentFailed:
		t.Errorf("%+v (%s), that it fails should be %t", step.Command, step.Why, fails)
	case !ok && !o.nothingLeft && !step.Until.After(time.Unix(3601, 0)):
		t.Errorf("it is not looked at again: until %s", step.Until)
	}
}
