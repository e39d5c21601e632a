package state

import (
	"maps"
	"slices"

	"skerry/fleet"
)

// applyPlan applies the command Plan: stops and other changes of existing allocations first, then
// placements, then evaluations.
// The plan was made from an older state, so only the hub's own decisions are taken from it. Reports that
// an edge made since win: an ended allocation does not become unknown or lost, nor does one on a node that
// is ready again. A stop that comes with lost is applied, and the edge receives it.
func (t *tx) applyPlan(c Plan) Result {
	if err := t.refuseStalePlan(c); err != nil {
		return Result{Err: err}
	}
	for _, a := range allPlanAllocs(c.Result) {
		if err := t.checkPlacement(a, c.Jobs); err != nil {
			return Result{Err: err}
		}
	}
	t.planDeployments(c)
	w := pendingEvals{seed: string(c.EvalID), now: c.Now}
	back := t.allocsBackInSight(c, &w)
	for _, a := range inNodeOrder(c.Result.NodeUpdate) {
		if t.currentAlloc(a.ID) == nil || back[a.ID] {
			continue
		}
		t.updatePlannedAlloc(a, c)
		if a.DesiredStatus == fleet.DesiredEvict {
			w.requestEval(a.Namespace, a.JobID, fleet.TriggerPreemption, nil) // the evicted job is placed elsewhere
		}
	}
	for _, a := range inNodeOrder(c.Result.NodeAllocation) {
		switch {
		case back[a.ID] || back[a.PreviousAllocation] && t.currentAlloc(a.ID) == nil:
		case t.currentAlloc(a.ID) != nil:
			t.updatePlannedAlloc(a, c)
		default:
			t.placeAlloc(a, c, &w)
		}
	}
	for _, e := range c.Evals {
		t.putEval(e, c.Now)
	}
	t.storePendingEvals(&w)
	return Result{}
}

// allocsBackInSight returns the running allocations that the plan calls unknown, and does not stop, and whose node is ready
// again: it came back after the planner checked the plan. Nothing stands in for them, and w gets an evaluation.
func (t *tx) allocsBackInSight(c Plan, w *pendingEvals) map[fleet.AllocID]bool {
	back := map[fleet.AllocID]bool{}
	for _, a := range allPlanAllocs(c.Result) {
		now := t.currentAlloc(a.ID)
		if now == nil || a.ClientStatus != fleet.ClientUnknown || a.NoLongerWanted() || now.ClientStatus == fleet.ClientUnknown || now.ClientTerminal() {
			continue
		}
		if n := nodeTable.currentRow(t, idKey(now.NodeID)); n != nil && n.Status == fleet.NodeReady {
			back[a.ID] = true
			w.requestEval(now.Namespace, now.JobID, fleet.TriggerNodeUpdate, &n.Node)
		}
	}
	return back
}

// refuseStalePlan returns an error if the job was registered again since the plan was made: the plan would
// start a version that is no longer the newest.
func (t *tx) refuseStalePlan(c Plan) *fleet.Error {
	if c.JobModifyIndex == 0 {
		return nil
	}
	row := jobTable.currentRow(t, jobKeyOf(c.Namespace, c.JobID))
	if row == nil || row.job.JobModifyIndex == c.JobModifyIndex {
		return nil // allocations of a purged job are stopped by the evaluation of the purge
	}
	return fleet.Errorf(fleet.CodeConflict, "commit plan: job %s was changed in entry %d, after the plan for it as of entry %d was made",
		c.JobID, row.job.JobModifyIndex, c.JobModifyIndex)
}

// allPlanAllocs returns all allocations of a plan, the updated ones first.
func allPlanAllocs(r fleet.PlanResult) []*fleet.Alloc {
	return append(inNodeOrder(r.NodeUpdate), inNodeOrder(r.NodeAllocation)...)
}

// inNodeOrder returns the allocations in the order of their nodes, and those of one node in the given
// order.
func inNodeOrder(byNode map[fleet.NodeID][]fleet.Alloc) []*fleet.Alloc {
	var out []*fleet.Alloc
	for _, id := range slices.Sorted(maps.Keys(byNode)) {
		for i := range byNode[id] {
			out = append(out, &byNode[id][i])
		}
	}
	return out
}

// checkPlacement returns an error if the node or the job version of a new allocation does not exist.
func (t *tx) checkPlacement(a *fleet.Alloc, jobs []*fleet.Job) *fleet.Error {
	switch {
	case t.currentAlloc(a.ID) != nil:
		return nil
	case a.ID == "":
		return fleet.Errorf(fleet.CodeInvalid, "commit plan: allocation %s has no id", a.Name)
	case nodeTable.currentRow(t, idKey(a.NodeID)) == nil && a.DesiredStatus != fleet.DesiredStop:
		return fleet.Errorf(fleet.CodeInvalid, "commit plan: allocation %s is for node %s, which does not exist",
			fleet.Short(a.ID), fleet.Short(a.NodeID))
	case t.findPlannedJob(a, jobs) == nil && a.DesiredStatus != fleet.DesiredStop:
		return fleet.Errorf(fleet.CodeInvalid, "commit plan: allocation %s runs version %d of job %s, which does not exist",
			fleet.Short(a.ID), a.JobVersion, a.JobID)
	}
	return nil
}

// findPlannedJob returns the job version that a plan's allocation names by version and hash (by version
// alone if it has no hash), or nil. It looks in the state first, then in brought, the jobs that the plan
// carries.
func (t *tx) findPlannedJob(a *fleet.Alloc, brought []*fleet.Job) *fleet.Job {
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

// sharedJobBody returns the stored body equal to j, so that allocations share it, or j itself if there is
// none.
func (t *tx) sharedJobBody(j *fleet.Job) *fleet.Job {
	if row := bodyTable.currentRow(t, bodyKey(j)); row != nil {
		return row.job
	}
	return j
}

// placeAlloc stores a new allocation as pending. If its node began to drain or was lost since the plan was
// made, an evaluation is added to w.
func (t *tx) placeAlloc(p *fleet.Alloc, c Plan, w *pendingEvals) {
	job := t.findPlannedJob(p, c.Jobs)
	if job == nil {
		return // it is to stop, and never ran
	}
	n := nodeTable.currentRow(t, idKey(p.NodeID))
	a := *p
	a.Job, a.JobHash, a.JobVersion = job, job.SpecHash, job.Version
	a.ClientStatus, a.ClientDescription, a.ReportedStatus = fleet.ClientPending, "", ""
	a.TaskStates, a.AllocStates, a.DesiredTransition = nil, nil, fleet.DesiredTransition{}
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
		// The drain began after the planner checked the plan, and may have ended since.
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
		// The node went away after the planner checked the plan, and the evaluations that this
		// caused do not know of this allocation.
		w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeUpdate, &n.Node)
	}
}

// decrementQueued subtracts one placement from the job's unplaced allocations of a group.
func (t *tx) decrementQueued(ns string, id fleet.JobID, group string) {
	row := jobTable.currentRow(t, jobKeyOf(ns, id))
	if row == nil || row.queued[group] == 0 {
		return
	}
	queued := maps.Clone(row.queued)
	queued[group]--
	t.setQueuedAllocs(ns, id, queued)
}

// updatePlannedAlloc changes an existing allocation as the plan decides. It must exist.
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
			if job := t.findPlannedJob(p, c.Jobs); job != nil {
				a.Job, a.JobHash, a.JobVersion = job, job.SpecHash, job.Version
			}
		} else if len(a.StopWindows) > 0 && len(p.StopWindows) == 0 {
			a.StopWindows, a.DesiredDescription = nil, p.DesiredDescription // it no longer waits for a window
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
			a.DeploymentID, a.DeploymentStatus = p.DeploymentID, nil // its health is determined again
		}
		n := nodeTable.currentRow(t, idKey(a.NodeID))
		applyPlannedStatus(&a.Alloc, p, n != nil && n.Status == fleet.NodeReady)
		if n != nil && t.isStoppingOutOfReach(&a.Alloc, n) {
			a.ClientStatus = fleet.ClientUnknown // the node went away after the plan was made
		}
		t.recordPlanDecision(a, &before, p.DesiredDescription, c.Now)
	})
}

// applyPlannedStatus sets the client status that the plan gives an allocation, unless a newer report
// contradicts it, and appends the plan's AllocStates. ready says that the allocation's node is ready.
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

// expiredUnseen reports whether a plan marks a sysbatch allocation lost whose window ended while its node
// was away, and the plan was made from the newest state of the allocation after the node's return.
func expiredUnseen(a, p *fleet.Alloc) bool {
	return p.ClientStatus == fleet.ClientLost && p.ModifyIndex == a.ModifyIndex &&
		a.NeedsToReconnect() && a.ClientStatus != fleet.ClientUnknown && a.Job != nil && a.Job.Type == fleet.JobTypeSysBatch
}

// eventRetired is the history event of a retired allocation.
const eventRetired = "retired"

// recordPlanDecision appends the plan's changes of an allocation to its history. before is the allocation
// before the plan, why the reason for people.
func (t *tx) recordPlanDecision(a *allocRow, before *fleet.Alloc, why string, now int64) {
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
		note(eventRetired)
	}
	if a.JobVersion != before.JobVersion {
		note("updated in place")
	}
}
