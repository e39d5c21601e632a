package planner

import (
	"skerry/fleet"
	"skerry/hub/state"
)

// allocChange is one allocation of a plan: a change of one that exists (update), or a
// placement or in-place update.
type allocChange struct {
	alloc  *fleet.Alloc
	update bool
}

// atomicParts groups what is committed into parts that one log entry holds whole: an
// allocation together with the one that it replaces, or that replaces it. If they were
// committed apart, both could run after a hub died in between. Everything else is a part
// of its own: no placement counts on room that the plan's stops free.
func atomicParts(r *fleet.PlanResult, nodes []fleet.NodeID) [][]allocChange {
	var pieces []allocChange
	for _, id := range nodes {
		for i := range r.NodeUpdate[id] {
			pieces = append(pieces, allocChange{&r.NodeUpdate[id][i], true})
		}
		for i := range r.NodeAllocation[id] {
			pieces = append(pieces, allocChange{&r.NodeAllocation[id][i], false})
		}
	}
	at := make(map[fleet.AllocID]int, len(pieces))
	for i, p := range pieces {
		at[p.alloc.ID] = i
	}
	part := make([]int, len(pieces)) // each piece's first known relative, itself where it has none
	for i := range part {
		part[i] = i
	}
	first := func(i int) int {
		for part[i] != i {
			part[i] = part[part[i]]
			i = part[i]
		}
		return i
	}
	for i, p := range pieces {
		for _, relative := range []fleet.AllocID{p.alloc.PreviousAllocation, p.alloc.NextAllocation} {
			if j, planned := at[relative]; planned && relative != "" {
				a, b := first(i), first(j)
				part[max(a, b)] = min(a, b)
			}
		}
	}
	number := make(map[int]int, len(pieces))
	var parts [][]allocChange
	for i, p := range pieces {
		n, known := number[first(i)]
		if !known {
			n = len(parts)
			number[first(i)] = n
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], p)
	}
	return parts
}

// remainingEntries are a plan's log entries that are still to be committed. Evaluations that
// allocations refer to go first, with the deployment; the end of the plan's own
// evaluation goes last, so that a commit that breaks off leaves it to be done again.
type remainingEntries struct {
	v          *verifiedPlan
	now        int64
	hasStarted bool
	evals      []fleet.Evaluation // all but the plan's own
	own        []fleet.Evaluation
	parts      [][]allocChange
}

func (v *verifiedPlan) splitIntoEntries(now int64) remainingEntries {
	c := remainingEntries{v: v, now: now, parts: atomicParts(&v.result, v.affectedNodes())}
	for _, e := range v.evals {
		if e.ID == v.plan.EvalID {
			c.own = append(c.own, e)
		} else {
			c.evals = append(c.evals, e)
		}
	}
	return c
}

// remainingSize counts what is left to commit.
func (c remainingEntries) remainingSize() int {
	n := len(c.evals)
	for _, p := range c.parts {
		n += len(p)
	}
	return n
}

// nextEntry makes the next entry, of at most limit evaluations and allocations (but of one
// atomic part at least), and returns what is left after it.
func (c remainingEntries) nextEntry(limit int) (state.Plan, remainingEntries) {
	entry := state.Plan{EvalID: c.v.plan.EvalID, Now: c.now, Result: fleet.PlanResult{
		NodeAllocation: map[fleet.NodeID][]fleet.Alloc{}, NodeUpdate: map[fleet.NodeID][]fleet.Alloc{},
	}}
	if job := c.v.plan.Job; job != nil {
		entry.Namespace, entry.JobID, entry.JobModifyIndex = job.Namespace, job.ID, job.JobModifyIndex
		if !c.v.hasJobVersion(job) {
			entry.Jobs = []*fleet.Job{job}
		}
	}
	if !c.hasStarted && c.v.hasDeploymentChange() {
		entry.NewDeployment, entry.DeploymentUpdates = c.v.plan.Deployment, c.v.plan.DeploymentUpdates
	}
	c.hasStarted = true
	n := min(limit, len(c.evals))
	entry.Evals, c.evals = c.evals[:n:n], c.evals[n:]
	for len(c.evals) == 0 && len(c.parts) > 0 && (n == 0 || n+len(c.parts[0]) <= limit) {
		for _, p := range c.parts[0] {
			into := entry.Result.NodeAllocation
			if p.update {
				into = entry.Result.NodeUpdate
			}
			into[p.alloc.NodeID] = append(into[p.alloc.NodeID], c.v.stripForEntry(p.alloc))
		}
		n += len(c.parts[0])
		c.parts = c.parts[1:]
	}
	if c.isFinished() {
		entry.Evals = append(entry.Evals, c.own...)
	}
	return entry, c
}

// isFinished reports whether nothing is left.
func (c remainingEntries) isFinished() bool {
	return c.hasStarted && len(c.evals) == 0 && len(c.parts) == 0
}

// hasJobVersion reports whether the state keeps a version of a job by itself.
func (v *verifiedPlan) hasJobVersion(job *fleet.Job) bool {
	for _, kept := range v.view.JobVersions(job.Namespace, job.ID) {
		if kept.Version == job.Version && kept.SpecHash == job.SpecHash {
			return true
		}
	}
	return false
}

// stripForEntry leaves out what the state does not take from a plan: of an allocation that
// exists all that the edge said.
func (v *verifiedPlan) stripForEntry(a *fleet.Alloc) fleet.Alloc {
	if _, exists := v.view.Alloc(a.ID); !exists {
		placed := *a
		placed.Job = nil
		return placed
	}
	return fleet.Alloc{
		ID: a.ID, Namespace: a.Namespace, JobID: a.JobID, NodeID: a.NodeID,
		JobVersion: a.JobVersion, JobHash: a.JobHash,
		DesiredStatus: a.DesiredStatus, DesiredDescription: a.DesiredDescription, DesiredTransition: a.DesiredTransition, StopWindows: a.StopWindows, Retired: a.Retired,
		ClientStatus: a.ClientStatus, AllocStates: a.AllocStates, FollowupEvalID: a.FollowupEvalID,
		RescheduleTracker: a.RescheduleTracker, NextAllocation: a.NextAllocation, DeploymentID: a.DeploymentID,
	}
}
