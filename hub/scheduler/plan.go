package scheduler

import (
	"fmt"
	"maps"
	"slices"

	"skerry/fleet"
	"skerry/reconcile"
)

// buildPlan returns the plan of an attempt. Each allocation in it is complete. The state sets
// NextAllocation of replaced ones itself. token is that of the delivered evaluation.
func (a *attempt) buildPlan(token string) fleet.Plan {
	p := fleet.Plan{
		EvalID: a.eval.ID, EvalToken: token, Priority: a.eval.Priority, Job: a.job, SnapshotIndex: a.view.Index(),
		AllAtOnce:      a.job != nil && a.job.AllAtOnce,
		NodeAllocation: map[fleet.NodeID][]fleet.Alloc{}, NodeUpdate: map[fleet.NodeID][]fleet.Alloc{},
	}
	update := func(into map[fleet.NodeID][]fleet.Alloc, changes []reconcile.Change, keep func(reconcile.Change) bool) {
		for _, c := range changes {
			if keep(c) {
				al := c.Apply(a.job)
				into[al.NodeID] = append(into[al.NodeID], al)
			}
		}
	}
	all := func(reconcile.Change) bool { return true }
	update(p.NodeUpdate, a.decisions.Stops, a.isStopPlanned)
	for _, c := range a.decisions.Stops {
		if c.Reschedules && !a.replaced[c.Alloc.ID] && !c.Alloc.AwaitsPlacement() {
			p.NodeUpdate[c.Alloc.NodeID] = append(p.NodeUpdate[c.Alloc.NodeID], c.Unplaced(a.job))
		}
	}
	update(p.NodeUpdate, a.decisions.Retired, a.isStopPlanned)
	update(p.NodeUpdate, a.decisions.Lost, all)
	update(p.NodeUpdate, a.decisions.Unknown, all)
	update(p.NodeUpdate, a.decisions.Reconnects, all)
	update(p.NodeUpdate, a.decisions.Kept, reconcile.Change.Waits)
	for _, evicted := range a.evicted {
		al := *evicted
		al.DesiredStatus, al.DesiredDescription = fleet.DesiredEvict, a.evictionReason()
		al.PreemptedFor = a.preemptingJob()
		p.NodeUpdate[al.NodeID] = append(p.NodeUpdate[al.NodeID], al)
	}
	update(p.NodeAllocation, a.decisions.InPlace, all)
	for _, al := range a.placements {
		p.NodeAllocation[al.NodeID] = append(p.NodeAllocation[al.NodeID], al)
	}
	p.Deployment = a.decisions.Deployment
	for _, u := range a.decisions.DeploymentUpdates {
		if u.Status != fleet.DeploymentSuccessful || !slices.ContainsFunc(a.placements, func(al fleet.Alloc) bool { return al.DeploymentID == u.DeploymentID }) {
			p.DeploymentUpdates = append(p.DeploymentUpdates, u) // a new placement of the deployment is not healthy yet
		}
	}
	p.Evals = a.evalsAfterPlan()
	return p
}

// isStopPlanned reports whether a stop or retirement is part of the plan. A stop with WithPlacement is, if
// its replacement found a node, or needs the stop to fit.
func (a *attempt) isStopPlanned(c reconcile.Change) bool {
	if c.Reschedules {
		return a.replaced[c.Alloc.ID] // otherwise buildPlan adds it as Unplaced
	}
	return !c.WithPlacement || a.replaced[c.Alloc.ID] || a.stopFirst[c.Alloc.ID]
}

// evalsAfterPlan returns the evaluations of the plan: follow-ups, cancellations, the end of the attempt's
// own evaluation, and the blocked one if placements failed.
func (a *attempt) evalsAfterPlan() []fleet.Evaluation {
	out := slices.Clone(a.decisions.FollowUps)
	for _, id := range a.decisions.Cancel {
		if e, ok := a.view.Eval(id); ok && !e.Terminal() {
			c := *e
			c.Status, c.StatusDescription = fleet.EvalCanceled, "what it waited for has come otherwise"
			out = append(out, c)
		}
	}
	done := *a.eval
	done.Status, done.StatusDescription = fleet.EvalComplete, ""
	done.SnapshotIndex, done.ModifyTime = a.view.Index(), a.now.UnixNano()
	done.QueuedAllocations, done.FailedTGAllocs, done.AwaitsRoom = a.queued, a.failedPlacements(), a.awaitingStops
	done.ClassEligibility, done.EscapedClass, done.AwaitedNodes = nil, false, nil
	done.DeploymentID, done.PlanAnnotations = a.deploymentToFollow(), &fleet.PlanAnnotations{DesiredTGUpdates: a.desiredUpdatesByGroup()}
	if len(a.failed) == 0 || !a.hasQueuedAllocs() {
		return append(out, done)
	}
	if isUnblockedEval(a.eval) {
		// The evaluation was blocked before, and is blocked again.
		return append(out, a.makeEvalBlocked(done, fleet.TriggerQueuedAllocs))
	}
	blocked := a.makeEvalBlocked(a.findOrNewBlockedEval(), fleet.TriggerQueuedAllocs)
	done.BlockedEval = blocked.ID
	return append(out, blocked, done)
}

// hasQueuedAllocs reports whether placements failed that more capacity would allow.
func (a *attempt) hasQueuedAllocs() bool {
	for _, n := range a.queued {
		if n > 0 {
			return true
		}
	}
	return false
}

// isUnblockedEval reports whether an evaluation was blocked for capacity before it was processed.
func isUnblockedEval(e *fleet.Evaluation) bool {
	return e.TriggeredBy == fleet.TriggerQueuedAllocs || e.TriggeredBy == fleet.TriggerMaxPlanAttempts
}

// findOrNewBlockedEval returns the job's blocked evaluation, or a new one.
func (a *attempt) findOrNewBlockedEval() fleet.Evaluation {
	for e := range a.view.EvalsByJob(a.eval.Namespace, a.eval.JobID) {
		if e.Status == fleet.EvalBlocked && e.ID != a.eval.ID {
			return *e
		}
	}
	e := fleet.Evaluation{
		ID: fleet.EvalID(a.newID()), Namespace: a.eval.Namespace, JobID: a.eval.JobID, Priority: a.eval.Priority,
		Type: a.eval.Type, JobModifyIndex: a.eval.JobModifyIndex, PreviousEval: a.eval.ID, CreateTime: a.now.UnixNano(),
	}
	return e
}

// makeEvalBlocked returns e as blocked, with the node classes that would help.
// Its priority is that of the job now, not that at the beginning of the wait: preemption compares the same
// number, and a job that runs before the job that preempts it would take the freed capacity again and
// again.
func (a *attempt) makeEvalBlocked(e fleet.Evaluation, trigger string) fleet.Evaluation {
	if a.job != nil {
		e.Priority, e.JobModifyIndex = a.job.Priority, a.job.JobModifyIndex
	}
	e.Status, e.TriggeredBy = fleet.EvalBlocked, trigger
	e.SnapshotIndex, e.ModifyTime = a.view.Index(), a.now.UnixNano()
	e.FailedTGAllocs, e.QueuedAllocations, e.AwaitsRoom = a.failedPlacements(), a.queued, a.awaitingStops
	e.StatusDescription = "waits for capacity: not all could be placed"
	if len(e.FailedTGAllocs) == 0 {
		e.StatusDescription = "waits until the allocations that make room have stopped"
	}
	e.AwaitedNodes = a.awaitedNodes()
	e.ClassEligibility, e.EscapedClass = map[string]bool{}, false
	for _, name := range slices.Sorted(maps.Keys(a.rankings)) {
		r := a.rankings[name]
		if a.failed[r.g.Name] != nil && r.feasibility.job == a.job && r.feasibility.mergeClassEligibility(e.ClassEligibility) {
			e.EscapedClass = true
		}
	}
	return e
}

// awaitedNodes returns the nodes on which allocations stop to make room for the job, sorted.
func (a *attempt) awaitedNodes() []fleet.NodeID {
	if a.plannedUsage == nil {
		return nil // the job is stopped
	}
	return slices.Sorted(maps.Keys(a.plannedUsage.awaitedByJob))
}

// maxAttemptsEvals returns the evaluations after too many rejected plans: the delivered one as failed, and
// a blocked one that is tried again when something changes.
func (a *attempt) maxAttemptsEvals(attempts int) []fleet.Evaluation {
	blocked := a.makeEvalBlocked(a.findOrNewBlockedEval(), fleet.TriggerMaxPlanAttempts)
	blocked.StatusDescription = "waits for a change: plans were refused too often"
	blocked.EscapedClass, blocked.AwaitedNodes, blocked.AwaitsRoom = true, nil, nil // rejected plans evicted and stopped nothing
	blocked.FailedTGAllocs = a.failed
	done := *a.eval
	done.Status, done.BlockedEval = fleet.EvalFailed, blocked.ID
	done.StatusDescription = fmt.Sprintf("maximum attempts reached (%d)", attempts)
	queued := maps.Clone(a.queued)
	for _, al := range a.placements {
		queued[al.TaskGroup]++
	}
	blocked.QueuedAllocations, done.QueuedAllocations, done.FailedTGAllocs = queued, queued, a.failed
	done.PlanAnnotations = &fleet.PlanAnnotations{DesiredTGUpdates: a.desiredUpdatesByGroup()}
	done.ModifyTime = a.now.UnixNano()
	return []fleet.Evaluation{blocked, done}
}
