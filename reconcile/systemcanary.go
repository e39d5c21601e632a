package reconcile

import (
	"slices"

	"skerry/fleet"
)

// planSystemCanaries computes how many nodes of a system job get canaries: a percentage of all suitable nodes,
// at most max_parallel. It marks vacant nodes for canaries and sets canaryTurns for the others.
func (d *decision) planSystemCanaries(g *fleet.TaskGroup, nodes []*nodeAllocs, r *rollout) {
	if r.update == nil {
		return
	}
	placed, targets := 0, 0
	for _, p := range nodes {
		if p.target && d.unsuitableReason(p.node, g) == "" {
			targets++
		}
		if m := p.currentOrUnknown(); m != nil && m.a.DeploymentStatus.IsCanary() && d.deployment != nil && m.a.DeploymentID == d.deployment.ID {
			placed++ // also on a node that is away
		}
	}
	if d.deployment == nil && r.update.Canary > 0 && r.outdated > 0 && !d.versionSucceeded {
		r.state.DesiredCanaries = min((targets*r.update.Canary+99)/100, r.update.MaxParallel)
	}
	if r.state.DesiredCanaries == 0 || r.state.Promoted {
		return
	}
	if r.canariesObsolete = d.deployment != nil && placed < r.state.DesiredCanaries && !slices.ContainsFunc(nodes, d.hasOlderVersion); r.canariesObsolete {
		return
	}
	r.changes = true
	for _, p := range nodes {
		if placed < r.state.DesiredCanaries && p.vacant && d.isEmptiedByDeployment(p) {
			p.canary = true
			placed++
		}
	}
	if r.holdReason == "" {
		r.holdForPromotion()
		r.canaryTurns = max(r.state.DesiredCanaries-placed, 0)
	}
}

// hasOlderVersion reports whether a node has an allocation of an older version, or one that a deployment
// stopped: a canary may replace it.
func (d *decision) hasOlderVersion(p *nodeAllocs) bool {
	return d.isEmptiedByDeployment(p) || slices.ContainsFunc(p.members, func(m *member) bool { return m.kind != kindEnded && d.needsDestructiveUpdate(m.a) })
}
