package state

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
)

// ownActiveDeployment returns a copy of an active deployment that this entry may change. It fails if the
// deployment is missing or over; verb begins the error.
func (t *tx) ownActiveDeployment(verb string, id fleet.DeploymentID) (*deploymentRow, *fleet.Error) {
	d := deploymentTable.currentRow(t, idKey(id))
	switch {
	case d == nil:
		return nil, fleet.Errorf(fleet.CodeNotFound, "%s deployment %s: there is no such deployment", verb, fleet.Short(id))
	case !d.Active():
		return nil, fleet.Errorf(fleet.CodeConflict, "%s deployment %s: it is %s and can no longer change", verb, fleet.Short(id), d.Status)
	}
	return t.ownDeployment(id), nil
}

// deploymentStatus applies the command DeploymentStatus: it changes the status of an active deployment,
// registers the job to roll back to, and stores an evaluation.
func (t *tx) deploymentStatus(c DeploymentStatus) Result {
	d, err := t.ownActiveDeployment("change", c.Update.DeploymentID)
	if err != nil {
		return Result{Err: err}
	}
	t.setDeploymentStatus(d, c.Update, c.Now)
	return t.rollBackAndEvaluate(d, c.Rollback, c.Eval, c.Now)
}

// rollBackAndEvaluate registers the job rollback, if not nil, and stores the evaluation eval of the
// deployment's job, if not nil. The Result names the evaluation, or says why the rollback was refused.
func (t *tx) rollBackAndEvaluate(d *deploymentRow, rollback *fleet.Job, eval *fleet.Evaluation, now int64) Result {
	if rollback != nil {
		if res := t.jobRegister(JobRegister{Job: rollback, Now: now}); res.Err != nil {
			return res
		}
	}
	row := jobTable.currentRow(t, jobKeyOf(d.Namespace, d.JobID))
	if eval == nil || row == nil {
		return Result{}
	}
	e := *eval
	e.DeploymentID = d.ID
	return Result{Eval: t.storeJobEval(&e, row.job, now), Version: row.job.Version, Modify: row.job.JobModifyIndex}
}

// deploymentPromote applies the command DeploymentPromote: it marks groups promoted, makes their canaries
// ordinary allocations, and stores an evaluation.
func (t *tx) deploymentPromote(c DeploymentPromote) Result {
	d, err := t.ownActiveDeployment("promote", c.DeploymentID)
	if err != nil {
		return Result{Err: err}
	}
	groups, err := t.promotableGroups(d, c.Groups)
	if err != nil {
		return Result{Err: err}
	}
	for _, name := range groups {
		s := d.TaskGroups[name]
		s.Promoted = true
		if !s.RequireProgressBy.IsZero() {
			s.RequireProgressBy = time.Unix(0, c.Now).UTC().Add(s.ProgressDeadline)
		}
		d.TaskGroups[name] = s
	}
	for _, id := range d.allocs {
		if a := t.currentAlloc(id); a != nil && a.DeploymentStatus.IsCanary() && slices.Contains(groups, a.TaskGroup) {
			t.changeAlloc(id, c.Now, func(a *allocRow) {
				promoted := *a.DeploymentStatus
				promoted.Canary, promoted.ModifyIndex = false, t.index
				a.DeploymentStatus = &promoted
			})
		}
	}
	if !d.RequiresPromotion() && d.Status == fleet.DeploymentRunning {
		d.StatusDescription = fleet.DescRunning
	}
	t.deploymentChanged(d, c.Now)
	return t.rollBackAndEvaluate(d, nil, c.Eval, c.Now)
}

// promotableGroups returns the named groups, or all, that have canaries and are not promoted. It fails if
// one of them has too few healthy canaries, or if there is no such group.
func (t *tx) promotableGroups(d *deploymentRow, named []string) ([]string, *fleet.Error) {
	for _, name := range named {
		if _, ok := d.TaskGroups[name]; !ok {
			return nil, fleet.Errorf(fleet.CodeInvalid, "promote deployment %s: it has no group %q", fleet.Short(d.ID), name)
		}
	}
	var groups []string
	for _, name := range d.Groups() {
		s := d.TaskGroups[name]
		switch {
		case len(named) > 0 && !slices.Contains(named, name), s.Promoted, s.DesiredCanaries == 0:
			continue
		case d.canaries[name].healthy < s.DesiredCanaries:
			return nil, fleet.Errorf(fleet.CodeConflict, "promote deployment %s: group %q has %d/%d healthy allocations",
				fleet.Short(d.ID), name, d.canaries[name].healthy, s.DesiredCanaries).WithHint("wait until they are, or fail the deployment")
		}
		groups = append(groups, name)
	}
	if len(groups) == 0 {
		return nil, fleet.Errorf(fleet.CodeInvalid, "promote deployment %s: no canaries to promote", fleet.Short(d.ID))
	}
	return groups, nil
}

// allocHealth applies the command AllocHealth: it sets the health of a deployment's allocations, flags
// failed ones for rescheduling, and stores the consequences for the deployment and its job.
func (t *tx) allocHealth(c AllocHealth) Result {
	d, err := t.ownActiveDeployment("set health in", c.DeploymentID)
	if err != nil {
		return Result{Err: err}
	}
	for _, list := range []struct {
		ids     []fleet.AllocID
		healthy bool
	}{{c.Healthy, true}, {c.Unhealthy, false}} {
		for _, id := range list.ids {
			if a := t.currentAlloc(id); a == nil || a.DeploymentID != c.DeploymentID {
				return refusal(fleet.CodeInvalid, "set health of allocation %s: it is not of deployment %s",
					fleet.Short(id), fleet.Short(c.DeploymentID))
			}
			t.changeAlloc(id, c.Now, func(a *allocRow) {
				setHealth(&a.Alloc, list.healthy, t.index, c.Now)
				a.history.appendEntries(t.newAllocHubEvent(a, "health set", healthWord(list.healthy), c.Now))
			})
		}
	}
	for _, id := range c.Reschedule {
		if a := t.currentAlloc(id); a != nil && a.DeploymentID == c.DeploymentID && !a.NoLongerWanted() {
			t.changeAlloc(id, c.Now, func(a *allocRow) { a.DesiredTransition.Reschedule = true })
		}
	}
	if c.Update != nil {
		t.setDeploymentStatus(d, *c.Update, c.Now)
	}
	return t.rollBackAndEvaluate(d, c.Rollback, c.Eval, c.Now)
}

// healthWord returns "healthy" or "unhealthy".
func healthWord(healthy bool) string {
	if healthy {
		return "healthy"
	}
	return "unhealthy"
}

// deploymentDelete applies the command DeploymentDelete: it removes deployments that are over. Unknown ids
// are ignored.
func (t *tx) deploymentDelete(c DeploymentDelete) Result {
	for _, id := range c.IDs {
		k := idKey(id)
		switch d := deploymentTable.currentRow(t, k); {
		case d == nil:
			continue
		case d.Active():
			return refusal(fleet.CodeConflict, "delete deployment %s: it is %s", fleet.Short(id), d.Status)
		default:
			deploymentTable.removeRow(t, k)
			deploymentTable.markChanged(t)
		}
	}
	return Result{}
}

// checkDeployments compares the lists and counts of deployments with their allocations. A job may have one
// active deployment at most.
func (c *checker) checkDeployments() {
	allocs := map[fleet.DeploymentID][]fleet.AllocID{}
	counts := map[fleet.DeploymentID]*deploymentRow{}
	for a := range allocTable.scanRows(c.v.txn) {
		if a.DeploymentID == "" {
			continue
		}
		allocs[a.DeploymentID] = append(allocs[a.DeploymentID], a.ID)
		if counts[a.DeploymentID] == nil {
			counts[a.DeploymentID] = &deploymentRow{}
		}
		counts[a.DeploymentID].countCanary(&a.Alloc, 1)
	}
	active := map[string]fleet.DeploymentID{}
	for d := range deploymentTable.scanRows(c.v.txn) {
		if !slices.Equal(d.allocs, allocs[d.ID]) {
			c.addCheckFailure("deployment %s lists %v and has %v", d.ID, d.allocs, allocs[d.ID])
		}
		if want := cmp.Or(counts[d.ID], &deploymentRow{}).canaries; !maps.Equal(d.canaries, want) {
			c.addCheckFailure("deployment %s counts the canaries %v and has %v", d.ID, d.canaries, want)
		}
		if d.ModifyIndex > c.applied || d.CreateIndex > d.ModifyIndex {
			c.addCheckFailure("deployment %s has indexes %d, %d at entry %d", d.ID, d.CreateIndex, d.ModifyIndex, c.applied)
		}
		for name, s := range d.TaskGroups {
			if s.HealthyAllocs < 0 || s.UnhealthyAllocs < 0 || s.HealthyAllocs+s.UnhealthyAllocs > s.PlacedAllocs {
				c.addCheckFailure("group %s of deployment %s placed %d, of which %d are healthy and %d are not",
					name, d.ID, s.PlacedAllocs, s.HealthyAllocs, s.UnhealthyAllocs)
			}
		}
		if k := string(jobKeyOf(d.Namespace, d.JobID)); d.Active() {
			if other, two := active[k]; two {
				c.addCheckFailure("deployments %s and %s of job %s are both active", other, d.ID, d.JobID)
			}
			active[k] = d.ID
		}
	}
}
