package planner

import (
	"context"

	"skerry/fleet"
	"skerry/hub/state"
)

// commit writes what was verified, in one entry or, for a large plan, several.
func (p *Planner) commit(ctx context.Context, v *verified) outcome {
	for _, c := range v.commands(p.cfg.Now().UnixNano()) {
		res, err := p.cfg.Applier.Apply(ctx, c)
		if err != nil {
			p.flight.doubt(v)
			return outcome{err: fleet.Errorf(fleet.CodeUnavailable, "commit plan of evaluation %s: %v",
				fleet.Short(v.plan.EvalID), err)}
		}
		if res.Err != nil {
			p.flight.remove(v, p.cfg.Now())
			return outcome{err: res.Err}
		}
		v.result.AllocIndex = res.Index
	}
	p.flight.remove(v, p.cfg.Now())
	if !v.result.Full() {
		v.result.RefreshIndex = max(v.result.RefreshIndex, v.result.AllocIndex)
		p.cfg.Logger.Debug("plan committed in part", "eval_id", v.plan.EvalID, "rejected", len(v.result.Rejected))
	}
	return outcome{result: v.result}
}

// commands makes the entries of a plan. Evaluations that allocations refer to
// come with the first, the end of the plan's own evaluation with the last: a
// commit that breaks off leaves it to be delivered again.
func (v *verified) commands(now int64) []state.Plan {
	empty := func() state.Plan {
		c := state.Plan{EvalID: v.plan.EvalID, Now: now, Result: fleet.PlanResult{
			NodeAllocation: map[fleet.NodeID][]fleet.Alloc{}, NodeUpdate: map[fleet.NodeID][]fleet.Alloc{},
		}}
		if job := v.plan.Job; job != nil {
			c.Namespace, c.JobID, c.JobModifyIndex = job.Namespace, job.ID, job.JobModifyIndex
		}
		return c
	}
	out := []state.Plan{empty()}
	if v.deploys() {
		out[0].NewDeployment, out[0].DeploymentUpdates = v.plan.Deployment, v.plan.DeploymentUpdates
	}
	n := 0
	for _, id := range v.nodes() {
		updates, allocs := v.result.NodeUpdate[id], v.result.NodeAllocation[id]
		if n > 0 && n+len(updates)+len(allocs) > chunk && !v.plan.AllAtOnce {
			out = append(out, empty())
			n = 0
		}
		n += len(updates) + len(allocs)
		c := &out[len(out)-1]
		if len(updates) > 0 {
			c.Result.NodeUpdate[id] = v.lean(updates)
		}
		if len(allocs) > 0 {
			c.Result.NodeAllocation[id] = v.lean(allocs)
		}
	}
	for _, e := range v.evals {
		c := &out[0]
		if e.ID == v.plan.EvalID {
			c = &out[len(out)-1]
		}
		c.Evals = append(c.Evals, e)
	}
	if job := v.plan.Job; job != nil && !v.knows(job) {
		for i := range out {
			out[i].Jobs = []*fleet.Job{job}
		}
	}
	return out
}

// knows reports whether the state keeps a version of a job by itself.
func (v *verified) knows(job *fleet.Job) bool {
	for _, kept := range v.view.JobVersions(job.Namespace, job.ID) {
		if kept.Version == job.Version && kept.SpecHash == job.SpecHash {
			return true
		}
	}
	return false
}

// lean leaves out what the state does not take from a plan: of an allocation that
// exists all that the edge said.
func (v *verified) lean(list []fleet.Alloc) []fleet.Alloc {
	out := make([]fleet.Alloc, len(list))
	for i, a := range list {
		out[i] = a
		out[i].Job = nil
		if _, exists := v.view.Alloc(a.ID); !exists {
			continue
		}
		out[i] = fleet.Alloc{
			ID: a.ID, Namespace: a.Namespace, JobID: a.JobID, NodeID: a.NodeID,
			JobVersion: a.JobVersion, JobHash: a.JobHash,
			DesiredStatus: a.DesiredStatus, DesiredDescription: a.DesiredDescription, DesiredTransition: a.DesiredTransition, StopWindows: a.StopWindows,
			ClientStatus: a.ClientStatus, AllocStates: a.AllocStates, FollowupEvalID: a.FollowupEvalID,
			RescheduleTracker: a.RescheduleTracker, NextAllocation: a.NextAllocation, DeploymentID: a.DeploymentID,
		}
	}
	return out
}
