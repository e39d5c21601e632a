package planner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"skerry/fleet"
	"skerry/fleet/placement"
	"skerry/hub/state"
)

// verifiedPlan is a plan with the part of it that may be committed.
type verifiedPlan struct {
	plan   fleet.Plan
	job    jobKey
	result fleet.PlanResult   // accepted allocations and rejected nodes
	evals  []fleet.Evaluation // to be committed
	view   *state.View        // the state that the plan was checked against
}

// verifyPlan checks a plan against the newest state and the plans in flight. If a part of it may be
// committed, it adds the plan to those in flight and returns it. Otherwise it returns nil and the outcome
// for the submitter.
func (p *Planner) verifyPlan(ctx context.Context, s *submission) (*verifiedPlan, outcome) {
	plan := s.plan
	if err := p.waitForSnapshot(ctx, plan.SnapshotIndex); err != nil {
		return nil, outcome{err: err}
	}
	// The plans in flight are read before the state: a commit that ends in between is then seen twice,
	// which the ids of its allocations show, but never missed.
	v := &verifiedPlan{plan: plan}
	pending := p.flight.usageOnNodes(v.affectedNodes())
	v.view = p.cfg.State.View()
	v.job = v.jobOfPlan()
	if e, ok := v.view.Eval(plan.EvalID); ok && e.Terminal() {
		return nil, outcome{err: fleet.Errorf(fleet.CodeConflict, "evaluation %s is %s already", fleet.Short(e.ID), e.Status)}
	}
	if refused := v.refuseIfSuperseded(p.flight.lastCommitOf(v.job)); refused != nil {
		return nil, outcome{result: *refused}
	}
	v.acceptOrRejectNodes(pending)
	v.evals = v.evalsToCommit()
	if v.isEmptyPlan() {
		return nil, outcome{result: v.result}
	}
	p.flight.addPlan(v)
	return v, outcome{}
}

// jobKey identifies a job.
type jobKey struct {
	namespace string
	id        fleet.JobID
}

// jobOfPlan returns the job of the plan, or of its evaluation if the plan has no job; zero if neither is
// known.
func (v *verifiedPlan) jobOfPlan() jobKey {
	if v.plan.Job != nil {
		return jobKey{v.plan.Job.Namespace, v.plan.Job.ID}
	}
	if e, ok := v.view.Eval(v.plan.EvalID); ok {
		return jobKey{e.Namespace, e.JobID}
	}
	return jobKey{}
}

// refuseIfSuperseded returns a refusal if another plan of the job is being committed, or was committed
// after the state that this plan was made from; else nil. A worker that was thought dead may submit such a
// plan: another delivery of its evaluation may have placed the same allocations.
func (v *verifiedPlan) refuseIfSuperseded(last lastCommit) *fleet.PlanResult {
	switch {
	case v.job == jobKey{}:
		return nil // a plan for an unknown job only stops allocations
	case last.underway > 0:
		return &fleet.PlanResult{
			Refused: fmt.Sprintf("another plan of job %s is being committed", v.job.id), RefreshIndex: v.view.Index(),
		}
	case v.plan.SnapshotIndex != 0 && v.plan.SnapshotIndex < last.index:
		return &fleet.PlanResult{
			Refused: fmt.Sprintf("the plan of job %s was made on entry %d, before another of its plans was committed in %d",
				v.job.id, v.plan.SnapshotIndex, last.index),
			RefreshIndex: last.index,
		}
	}
	return nil
}

// waitForSnapshot blocks until this hub has applied the entry index, which the worker had seen, and no
// commit is in doubt. It fails after catchUpTimeout.
func (p *Planner) waitForSnapshot(ctx context.Context, index fleet.Index) error {
	if err := p.flight.resolveDoubtful(ctx, &p.cfg); err != nil {
		return fleet.Errorf(fleet.CodeUnavailable, "check plan: an earlier commit is in doubt: %v", err)
	}
	if p.cfg.State.View().Index() >= index {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	if err := p.cfg.State.WaitIndex(ctx, index); err != nil {
		return fleet.Errorf(fleet.CodeUnavailable, "check plan: %v", err)
	}
	return nil
}

// acceptOrRejectNodes checks each node of the plan, and fills in v.result. If the plan is AllAtOnce and
// one node is rejected, nothing is accepted. pending is the usage of the plans in flight.
func (v *verifiedPlan) acceptOrRejectNodes(pending usage) {
	v.result = fleet.PlanResult{
		NodeAllocation: map[fleet.NodeID][]fleet.Alloc{},
		NodeUpdate:     map[fleet.NodeID][]fleet.Alloc{},
	}
	for _, id := range v.affectedNodes() {
		if reason := v.checkNode(id, pending); reason != "" {
			if v.result.Rejected == nil {
				v.result.Rejected = map[fleet.NodeID]string{}
			}
			v.result.Rejected[id] = reason
			continue
		}
		if list := v.plan.NodeUpdate[id]; len(list) > 0 {
			v.result.NodeUpdate[id] = list
		}
		if list := v.plan.NodeAllocation[id]; len(list) > 0 {
			v.result.NodeAllocation[id] = list
		}
	}
	if v.result.Full() {
		return
	}
	v.result.RefreshIndex = v.view.Index()
	if v.plan.AllAtOnce {
		clear(v.result.NodeUpdate)
		clear(v.result.NodeAllocation)
		return
	}
	v.dropUnsafeReplacements()
}

// dropUnsafeReplacements removes from the result the placements that replace an allocation whose stop was
// rejected with its node. Otherwise both would run.
func (v *verifiedPlan) dropUnsafeReplacements() {
	stays := map[fleet.AllocID]bool{}
	for id := range v.result.Rejected {
		for _, a := range v.plan.NodeUpdate[id] {
			stays[a.ID] = true
		}
	}
	for id, list := range v.result.NodeAllocation {
		replaces := func(a fleet.Alloc) bool { return stays[a.PreviousAllocation] }
		if list = slices.DeleteFunc(slices.Clone(list), replaces); len(list) == 0 {
			delete(v.result.NodeAllocation, id)
		} else {
			v.result.NodeAllocation[id] = list
		}
	}
}

// affectedNodes returns the nodes of the plan, sorted.
func (v *verifiedPlan) affectedNodes() []fleet.NodeID {
	ids := map[fleet.NodeID]bool{}
	for id := range v.plan.NodeUpdate {
		ids[id] = true
	}
	for id := range v.plan.NodeAllocation {
		ids[id] = true
	}
	return slices.Sorted(maps.Keys(ids))
}

// isEmptyPlan reports whether nothing of the plan is to be committed.
func (v *verifiedPlan) isEmptyPlan() bool {
	return len(v.result.NodeUpdate) == 0 && len(v.result.NodeAllocation) == 0 && len(v.evals) == 0 && !v.hasDeploymentChange()
}

// hasDeploymentChange reports whether the plan's deployment changes are to be committed. They are, even if
// nodes were rejected, because accepted allocations refer to the new deployment; not so for a rejected
// AllAtOnce plan.
func (v *verifiedPlan) hasDeploymentChange() bool {
	if v.plan.Deployment == nil && len(v.plan.DeploymentUpdates) == 0 {
		return false
	}
	return v.result.Full() || !v.plan.AllAtOnce
}

// checkNode returns the reason why the plan's changes on a node are rejected, or "".
func (v *verifiedPlan) checkNode(id fleet.NodeID, pending usage) string {
	n, _ := v.view.Node(id)
	for i := range v.plan.NodeUpdate[id] {
		a := &v.plan.NodeUpdate[id][i]
		if old, ok := v.view.Alloc(a.ID); ok {
			if reason := checkChange(a, old, n); reason != "" {
				return reason
			}
		}
	}
	var need fleet.Resources
	var placed []*fleet.Alloc
	for i := range v.plan.NodeAllocation[id] {
		a := &v.plan.NodeAllocation[id][i]
		if old, ok := v.view.Alloc(a.ID); ok {
			if reason := checkChange(a, old, n); reason != "" {
				return reason
			}
			continue
		}
		placed = append(placed, a)
		need = need.Add(a.AllocatedResources)
	}
	if len(placed) == 0 {
		return ""
	}
	if reason := v.checkPlacement(n, need, pending); reason != "" {
		return reason
	}
	return v.checkClaims(n, placed, pending)
}

// checkClaims returns the reason why new allocations cannot have the ports, cores and devices that the
// plan assigns, or exceed the node's MaxAllocs; "" if neither is so.
func (v *verifiedPlan) checkClaims(n *fleet.Node, placed []*fleet.Alloc, pending usage) string {
	given := slices.ContainsFunc(placed, func(a *fleet.Alloc) bool { return !a.Allotment.Empty() })
	if !given && n.MaxAllocs == 0 {
		return ""
	}
	claims, there := placement.NewClaims(n), len(placed)
	for a := range v.view.AllocsByNode(n.ID) {
		if a.OccupiesNode() {
			there++
			claims.Hold(a.Allotment)
		}
	}
	for id, t := range pending[n.ID] {
		if _, applied := v.view.Alloc(id); !applied {
			there++
			claims.Hold(t.assignedResources)
		}
	}
	if n.MaxAllocs > 0 && there > n.MaxAllocs {
		return fmt.Sprintf("the node takes %d allocations", n.MaxAllocs)
	}
	for _, a := range placed {
		if clash := claims.Hold(a.Allotment); clash != "" {
			return clash
		}
	}
	return ""
}

// checkPlacement returns the reason why new allocations that need these resources cannot be placed on a
// node, or "". n is nil for an unknown node.
func (v *verifiedPlan) checkPlacement(n *fleet.Node, need fleet.Resources, pending usage) string {
	switch {
	case n == nil:
		return "the node does not exist"
	case n.Status != fleet.NodeReady:
		return fmt.Sprintf("the node is %s", n.Status)
	case !n.Eligible():
		return "the node is not eligible for scheduling"
	case !n.Schedulable():
		return n.WhyFull()
	}
	used := v.view.Used(n.ID)
	for alloc, takes := range pending[n.ID] {
		if _, applied := v.view.Alloc(alloc); !applied {
			used = used.Add(takes.resources)
		}
	}
	if short := used.Add(need).Exceeds(n.Free()); short != "" {
		return short + " exhausted"
	}
	return ""
}

// checkChange returns the reason why the plan may not change the existing allocation old to a, or "". A
// stop or a retirement is always allowed. To run on, its node must be ready (it may be full or
// ineligible). On a node that is not ready, only the change to unknown is allowed.
func checkChange(a, old *fleet.Alloc, n *fleet.Node) string {
	ready := n != nil && n.Status == fleet.NodeReady
	switch {
	case a.NoLongerWanted(), a.ClientStatus == fleet.ClientLost:
		return ""
	case old.ServerTerminal():
		return fmt.Sprintf("allocation %s is to stop", fleet.Short(a.ID))
	case a.ClientStatus == fleet.ClientUnknown && ready:
		return fmt.Sprintf("the node is ready again, allocation %s is not unknown", fleet.Short(a.ID))
	case a.ClientStatus == fleet.ClientUnknown, old.ClientTerminal(), ready:
		return ""
	case n == nil:
		return "the node does not exist"
	}
	return fmt.Sprintf("the node is %s", n.Status)
}

// evalsToCommit returns the evaluations of the plan that are to be committed. If nodes were rejected, the
// scheduler plans again, so the plan's own evaluation does not end; only cancellations and the follow-up
// evaluations of accepted allocations are kept.
func (v *verifiedPlan) evalsToCommit() []fleet.Evaluation {
	if v.result.Full() {
		return v.plan.Evals
	}
	awaited := map[fleet.EvalID]bool{}
	for _, byNode := range []map[fleet.NodeID][]fleet.Alloc{v.result.NodeUpdate, v.result.NodeAllocation} {
		for _, list := range byNode {
			for i := range list {
				awaited[list[i].FollowupEvalID] = true
			}
		}
	}
	var kept []fleet.Evaluation
	for _, e := range v.plan.Evals {
		if e.ID != v.plan.EvalID && (awaited[e.ID] || e.Status == fleet.EvalCanceled) {
			kept = append(kept, e)
		}
	}
	return kept
}
