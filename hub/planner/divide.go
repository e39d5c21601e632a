package planner

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// allocChange is one allocation of a plan. update says that it is from NodeUpdate, else it is from
// NodeAllocation.
type allocChange struct {
	alloc  *fleet.Alloc
	update bool
}

// atomicParts groups the allocations of r into parts that must be in one log entry: an
// allocation together with those that it replaces, or that replace it. If they were
// committed apart, both could run after a hub died in between. Every other allocation is a part
// of its own: no placement depends on capacity that a stop of the same plan frees.
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
	part := make([]int, len(pieces)) // union-find: the parent of each piece, itself for a root
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

// planChunk is a part of a plan that one log entry can carry, or the whole plan before it is divided. Evaluations that
// allocations refer to come first, with the deployment. The plan's own evaluation comes last: if the
// commit breaks off, it stays pending and is processed again.
type planChunk struct {
	v     *verifiedPlan
	first bool               // it has the plan's deployment
	evals []fleet.Evaluation // without the plan's own
	parts [][]allocChange    // see atomicParts
	own   []fleet.Evaluation // the plan's own evaluation; empty if it is not committed, or in a later chunk
}

// asChunk returns the whole plan as one chunk.
func (v *verifiedPlan) asChunk() planChunk {
	c := planChunk{v: v, first: true, parts: atomicParts(&v.result, v.affectedNodes())}
	for _, e := range v.evals {
		if e.ID == v.plan.EvalID {
			c.own = append(c.own, e)
		} else {
			c.evals = append(c.evals, e)
		}
	}
	return c
}

// divideIntoChunks divides a whole plan into chunks that are committed in one entry each, at least one. If there are several,
// the plan's own evaluation, if it is committed, is alone in the last one. A plan that is for all at once is not divided here.
func (c planChunk) divideIntoChunks() []planChunk {
	limit := maxEntryAllocs
	if c.v.plan.AllAtOnce {
		limit = max(limit, c.countChanges())
	}
	part, rest := c.cutChunk(limit)
	chunks := []planChunk{part}
	for !rest.isEmpty() {
		part, rest = rest.cutChunk(limit)
		chunks = append(chunks, part)
	}
	if last := &chunks[len(chunks)-1]; len(chunks) > 1 && len(last.own) > 0 {
		end := planChunk{v: c.v, own: last.own}
		last.own = nil
		chunks = append(chunks, end)
	}
	return chunks
}

// countChanges returns the number of evaluations and allocations, without the plan's own evaluation.
func (c planChunk) countChanges() int {
	n := len(c.evals)
	for _, p := range c.parts {
		n += len(p)
	}
	return n
}

// cutChunk returns the first part of a chunk, and the rest, which is empty if everything is in the first. The first has
// at most limit evaluations and allocations, but at least one part of allocations, even if that is larger.
func (c planChunk) cutChunk(limit int) (part, rest planChunk) {
	n := min(limit, len(c.evals))
	part, rest = c, c
	part.evals, rest.evals = c.evals[:n:n], c.evals[n:]
	cut := 0
	for len(rest.evals) == 0 && cut < len(c.parts) && (n == 0 || n+len(c.parts[cut]) <= limit) {
		n += len(c.parts[cut])
		cut++
	}
	part.parts, rest.parts, rest.first = c.parts[:cut:cut], c.parts[cut:], false
	if len(rest.evals) > 0 || len(rest.parts) > 0 {
		part.own = nil
	} else {
		rest.own = nil
	}
	return part, rest
}

// isEmpty reports whether nothing is left in a rest of cutChunk.
func (c planChunk) isEmpty() bool { return len(c.evals) == 0 && len(c.parts) == 0 && len(c.own) == 0 }

// asEntry returns the log entry of a chunk that is committed now.
func (c planChunk) asEntry(now time.Time) state.Plan {
	entry := state.Plan{EvalID: c.v.plan.EvalID, Now: now.UnixNano(), Evals: slices.Concat(c.evals, c.own), Result: fleet.PlanResult{
		NodeAllocation: map[fleet.NodeID][]fleet.Alloc{}, NodeUpdate: map[fleet.NodeID][]fleet.Alloc{},
	}}
	if job := c.v.plan.Job; job != nil {
		entry.Namespace, entry.JobID, entry.JobModifyIndex = job.Namespace, job.ID, job.JobModifyIndex
		if len(c.parts) > 0 && !c.v.hasJobVersion(job) {
			entry.Jobs = []*fleet.Job{job}
		}
	}
	if c.first && c.v.hasDeploymentChange() {
		entry.NewDeployment, entry.DeploymentUpdates = c.v.plan.Deployment, c.v.plan.DeploymentUpdates
	}
	for _, part := range c.parts {
		for _, p := range part {
			into := entry.Result.NodeAllocation
			if p.update {
				into = entry.Result.NodeUpdate
			}
			into[p.alloc.NodeID] = append(into[p.alloc.NodeID], c.v.stripForEntry(p.alloc))
		}
	}
	return entry
}

// hasJobVersion reports whether the state keeps this version of the job, so that entries need not carry
// it.
func (v *verifiedPlan) hasJobVersion(job *fleet.Job) bool {
	for _, kept := range v.view.JobVersions(job.Namespace, job.ID) {
		if kept.Version == job.Version && kept.SpecHash == job.SpecHash {
			return true
		}
	}
	return false
}

// stripForEntry returns an allocation with only the fields that the command Plan reads. For an existing
// allocation these are the hub's decisions, without the reports of the edge.
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
