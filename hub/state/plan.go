package state

import (
	"maps"
	"slices"

	"skerry/fleet"
)

// applyPlan commits what the planner checked: stops and conclusions first, then
// placements, then evaluations.
//
// A plan was made on an older picture, and only the hub's own decisions are taken
// from it. What an edge reported since wins: an allocation that the edge says is
// over does not become unknown or lost, and none does on a node that is ready
// again (a stop that comes with lost is taken, and the edge is told).
func (t *tx) applyPlan(c Plan) Result {
	if err := t.refuseStalePlan(c); err != nil {
		return Result{Err: err}
	}
	for _, a := range everyAlloc(c.Result) {
		if err := t.checkPlacement(a, c.Jobs); err != nil {
			return Result{Err: err}
		}
	}
	t.planDeployments(c)
	w := pendingEvals{seed: string(c.EvalID), now: c.Now}
	for _, a := range inOrder(c.Result.NodeUpdate) {
		if t.currentAlloc(a.ID) == nil {
			continue
		}
		t.updatePlannedAlloc(a, c)
		if a.DesiredStatus == fleet.DesiredEvict {
			w.requestEval(a.Namespace, a.JobID, fleet.TriggerPreemption, nil) // it looks for another place
		}
	}
	for _, a := range inOrder(c.Result.NodeAllocation) {
		if t.currentAlloc(a.ID) != nil {
			t.updatePlannedAlloc(a, c)
		} else {
			t.placeAlloc(a, c, &w)
		}
	}
	for _, e := range c.Evals {
		t.putEval(e, c.Now)
	}
	t.storePendingEvals(&w)
	return Result{}
}

// refuseStalePlan refuses a plan for what its job was before somebody changed it: it would
// begin a version that is not the newest any more.
func (t *tx) refuseStalePlan(c Plan) *fleet.Error {
	if c.JobModifyIndex == 0 {
		return nil
	}
	row := jobTable.currentRow(t, jobKeyOf(c.Namespace, c.JobID))
	if row == nil || row.job.JobModifyIndex == c.JobModifyIndex {
		return nil // what is placed of a job that was purged, the purge's evaluation stops
	}
	return fleet.Errorf(fleet.CodeConflict, "commit plan: job %s was changed in entry %d, after the plan for it as of entry %d was made",
		c.JobID, row.job.JobModifyIndex, c.JobModifyIndex)
}

func everyAlloc(r fleet.PlanResult) []*fleet.Alloc {
	return append(inOrder(r.NodeUpdate), inOrder(r.NodeAllocation)...)
}

// inOrder lists a plan's allocations by node, and of one node as they are given.
func inOrder(byNode map[fleet.NodeID][]fleet.Alloc) []*fleet.Alloc {
	var out []*fleet.Alloc
	for _, id := range slices.Sorted(maps.Keys(byNode)) {
		for i := range byNode[id] {
			out = append(out, &byNode[id][i])
		}
	}
	return out
}

// checkPlacement checks that the cluster has the node and the job of a new allocation.
func (t *tx) checkPlacement(a *fleet.Alloc, jobs []*fleet.Job) *fleet.Error {
	switch {
	case t.currentAlloc(a.ID) != nil:
		return nil
	case a.ID == "":
		return fleet.Errorf(fleet.CodeInvalid, "commit plan: allocation %s has no id", a.Name)
	case nodeTable.currentRow(t, idKey(a.NodeID)) == nil && a.DesiredStatus != fleet.DesiredStop:
		return fleet.Errorf(fleet.CodeInvalid, "commit plan: allocation %s is for node %s, which does not exist",
			fleet.Short(a.ID), fleet.Short(a.NodeID))
	case t.jobFor(a, jobs) == nil && a.DesiredStatus != fleet.DesiredStop:
		return fleet.Errorf(fleet.CodeInvalid, "commit plan: allocation %s runs version %d of job %s, which does not exist",
			fleet.Short(a.ID), a.JobVersion, a.JobID)
	}
	return nil
}

// jobFor returns the job that a plan's allocation names by version and hash (by
// version alone where it has no hash): one that is kept, or one that the plan
// brought along.
func (t *tx) jobFor(a *fleet.Alloc, brought []*fleet.Job) *fleet.Job {
	if a.JobHash == "" {
		if row := jobTable.currentRow(t, jobKeyOf(a.Namespace, a.JobID)); row != nil {
			for _, v := range row.versions {
				if v.Version == a.JobVersion {
					return v
				}
			}
		}
		return nil
	}
	if job := t.findJobBody(a); job != nil {
		return job
	}
	for _, j := range brought {
		if j.SpecHash == a.JobHash && j.Version == a.JobVersion && j.Namespace == a.Namespace && j.ID == a.JobID {
			return t.sharedJobBody(j)
		}
	}
	return nil
}

// sharedJobBody returns the one body of a job that a plan brought along.
func (t *tx) sharedJobBody(j *fleet.Job) *fleet.Job {
	if row := bodyTable.currentRow(t, bodyKey(j)); row != nil {
		return row.job
	}
	return j
}

// placeAlloc stores a new allocation.
func (t *tx) placeAlloc(p *fleet.Alloc, c Plan, w *pendingEvals) {
	job := t.jobFor(p, c.Jobs)
	if job == nil {
		return // it shall not run, and never did
	}
	n := nodeTable.currentRow(t, idKey(p.NodeID))
	a := *p
	a.Job, a.JobHash, a.JobVersion = job, job.SpecHash, job.Version
	a.ClientStatus, a.ClientDescription, a.ReportedStatus = fleet.ClientPending, "", ""
	a.TaskStates, a.AllocStates, a.DesiredTransition = nil, nil, fleet.DesiredTransition{}
	if a.DesiredStatus == "" {
		a.DesiredStatus = fleet.DesiredRun
	}
	if a.EvalID == "" {
		a.EvalID = c.EvalID
	}
	if a.DeploymentID == "" {
		a.DeploymentID = c.Deployment
	}
	if s := p.DeploymentStatus; s != nil {
		a.DeploymentStatus = &fleet.AllocDeployment{Canary: s.Canary, ModifyIndex: t.index}
	}
	if a.NodeName == "" {
		a.NodeName = n.Name
	}
	late := n.DrainStrategy != nil || n.SchedulingEligibility == fleet.NodeIneligible && n.LastDrain != nil && n.LastDrain.Status == fleet.DrainComplete
	if late {
		// The drain began after the planner looked, and may have ended since.
		a.DesiredTransition.Migrate = true
		w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeDrain, nil)
	}
	row := t.newAlloc(a, c.Now)
	row.history.appendEntries(t.newAllocHubEvent(row, "placed", a.DesiredDescription, c.Now))
	if t.currentAlloc(a.PreviousAllocation) != nil {
		t.changeAlloc(a.PreviousAllocation, c.Now, func(prev *allocRow) { prev.NextAllocation = a.ID })
	}
	for _, id := range a.PreemptedAllocations {
		if t.currentAlloc(id) != nil {
			t.changeAlloc(id, c.Now, func(evicted *allocRow) { evicted.PreemptedByAllocation = a.ID })
		}
	}
	t.decrementQueued(a.Namespace, a.JobID, a.TaskGroup)
	if n.Status != fleet.NodeReady {
		// The node went away after the planner looked, and the evaluations of that
		// moment do not know of this allocation.
		w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeUpdate, &n.Node)
	}
}

// decrementQueued counts a placement against what the job waits for.
func (t *tx) decrementQueued(ns string, id fleet.JobID, group string) {
	row := jobTable.currentRow(t, jobKeyOf(ns, id))
	if row == nil || row.queued[group] == 0 {
		return
	}
	queued := maps.Clone(row.queued)
	queued[group]--
	t.setQueuedAllocs(ns, id, queued)
}

// updatePlannedAlloc takes the hub's decisions about an allocation that exists.
func (t *tx) updatePlannedAlloc(p *fleet.Alloc, c Plan) {
	t.changeAlloc(p.ID, c.Now, func(a *allocRow) {
		before := a.Alloc
		if !a.ServerTerminal() {
			a.Retired = a.Retired || p.Retired
			if p.DesiredStatus != "" {
				a.DesiredStatus, a.DesiredDescription, a.PreemptedFor = p.DesiredStatus, p.DesiredDescription, p.PreemptedFor
			}
			if a.ServerTerminal() {
				a.StopWindows = p.StopWindows
			}
			if job := t.jobFor(p, c.Jobs); job != nil {
				a.Job, a.JobHash, a.JobVersion = job, job.SpecHash, job.Version
			}
		} else if len(a.StopWindows) > 0 && len(p.StopWindows) == 0 {
			a.StopWindows, a.DesiredDescription = nil, p.DesiredDescription // it waits no longer
		}
		a.DesiredTransition.Migrate = a.DesiredTransition.Migrate || p.DesiredTransition.Migrate
		a.DesiredTransition.Reschedule = a.DesiredTransition.Reschedule || p.DesiredTransition.Reschedule
		a.FollowupEvalID = p.FollowupEvalID
		if p.RescheduleTracker != nil {
			a.RescheduleTracker = p.RescheduleTracker
		}
		if p.NextAllocation != "" {
			a.NextAllocation = p.NextAllocation
		}
		if p.DeploymentID != "" && p.DeploymentID != a.DeploymentID {
			a.DeploymentID, a.DeploymentStatus = p.DeploymentID, nil // its health is of the new version
		}
		n := nodeTable.currentRow(t, idKey(a.NodeID))
		applyPlannedStatus(&a.Alloc, p, n != nil && n.Status == fleet.NodeReady)
		t.markDecision(a, &before, p.DesiredDescription, c.Now)
	})
}

// applyPlannedStatus takes what a plan says of an allocation's client status, as far as no
// edge contradicts it.
func applyPlannedStatus(a, p *fleet.Alloc, ready bool) {
	switch p.ClientStatus {
	case fleet.ClientUnknown, fleet.ClientLost:
		if ready && !expiredUnseen(a, p) || a.ClientTerminal() {
			return
		}
		a.ClientStatus = p.ClientStatus
	default:
		if a.ClientStatus == fleet.ClientUnknown && !ready {
			return
		}
		a.ClientStatus = effectiveStatus(a, true)
	}
	if known := len(a.AllocStates); len(p.AllocStates) > known {
		a.AllocStates = append(slices.Clip(slices.Clone(a.AllocStates)), p.AllocStates[known:]...)
	}
}

// expiredUnseen reports whether a plan gives up an allocation of a sysbatch job whose window
// ended while its node was away, knowing that the node is back and what is there now.
func expiredUnseen(a, p *fleet.Alloc) bool {
	return p.ClientStatus == fleet.ClientLost && p.ModifyIndex == a.ModifyIndex &&
		a.NeedsToReconnect() && a.ClientStatus != fleet.ClientUnknown && a.Job != nil && a.Job.Type == fleet.JobTypeSysBatch
}

// markRetired is what an allocation's record says of its retirement.
const markRetired = "retired"

// markDecision notes in an allocation's record what a plan changed of it.
func (t *tx) markDecision(a *allocRow, before *fleet.Alloc, why string, now int64) {
	note := func(event string) { a.history.appendEntries(t.newAllocHubEvent(a, event, why, now)) }
	switch {
	case a.ClientStatus == before.ClientStatus:
	case a.ClientStatus == fleet.ClientUnknown, a.ClientStatus == fleet.ClientLost:
		note(a.ClientStatus)
	}
	if before.NeedsToReconnect() && !a.NeedsToReconnect() && a.ClientStatus != fleet.ClientLost {
		note("reconnected")
	}
	if a.ServerTerminal() && !before.ServerTerminal() {
		note(a.DesiredStatus)
	}
	if a.Retired && !before.Retired {
		note(markRetired)
	}
	if a.JobVersion != before.JobVersion {
		note("updated in place")
	}
}
