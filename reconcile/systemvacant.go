package reconcile

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// findVacantNodes finds the nodes that need an allocation and have none.
//
// A node whose allocation was stopped, by the deployment or an operator, keeps its turn until
// the new allocation is placed, and counts as unavailable at its site. A node that never had
// an allocation takes no turn, for it may stay full. A node that is away takes no turn
// either, but counts at its site.
func (d *decision) findVacantNodes(g *fleet.TaskGroup, nodes []*nodeAllocs, r *rollout) {
	for _, p := range nodes {
		empty := p.currentOrUnknown() == nil && d.unsuitableReason(p.node, g) == "" && !d.isLastAllocLost(p)
		p.vacant, p.awaited = empty && p.target, empty && d.isAwaitingNode(p)
		switch {
		case p.awaited:
			r.sites.countMissingAbsent(p.node.SiteName())
		case !p.vacant:
		case p.hasMemberOfKind(kindMigrating) || d.isEmptiedByDeployment(p):
			r.reserveTurns(1)
			r.sites.countMissing(p.node.SiteName())
			r.changes = r.changes || r.update != nil && d.deployment == nil && d.needsUpdateOnReturn(p.members[len(p.members)-1])
		default:
			r.vacant++
		}
	}
}

// AwaitsNode reports whether a system job waits for the absent node of an allocation that was stopped, the newest of its
// group there, to place its newest version on the node. pool is the node's pool; nil: it is not known. suits is Input.Suits.
func AwaitsNode(job *fleet.Job, node *fleet.Node, pool *fleet.Pool, a *fleet.Alloc, suits func(*fleet.Node, string) (string, bool), now time.Time) bool {
	g := job.Group(a.TaskGroup)
	d := &decision{in: Input{Job: job, Now: now, Nodes: map[fleet.NodeID]*fleet.Node{node.ID: node}, Suits: suits}}
	if pool != nil {
		d.in.DefaultDisconnect = map[string]string{pool.Name: pool.DefaultDisconnect}
	}
	return g != nil && d.unsuitableReason(node, g) == "" && d.isAwaitingNode(&nodeAllocs{node: node, members: []*member{d.classifyAlloc(a)}})
}

// isAwaitingNode reports whether an empty node, whose allocation was stopped, gets the newest
// version as soon as it is ready again. The job does not wait for an ineligible node, nor for
// one whose absence means that its allocations are lost.
func (d *decision) isAwaitingNode(p *nodeAllocs) bool {
	n := p.node
	if d.isBatchJob() || n.Revoked != nil || n.Status == fleet.NodeReady || n.SchedulingEligibility == fleet.NodeIneligible || len(p.members) == 0 {
		return false
	}
	last := p.members[len(p.members)-1]
	if last.a.Job == nil || last.a.Job.CreateIndex != d.in.Job.CreateIndex {
		return false // it belongs to an earlier job of the same name
	}
	since := last.awaySince()
	if last.a.ClientStatus != fleet.ClientUnknown && (last.kind == kindLost || d.isStopUnconfirmed(last)) {
		since = d.in.Now // this decision marks it lost
	}
	switch {
	case n.Status == fleet.NodeInitializing:
		return true
	case !last.rules.Tolerated, last.rules.Nomad, last.rules.isPastLostAfter(since, d.in.Now):
		return false
	case last.rules.LostAfter > 0:
		d.evalRequests = append(d.evalRequests, evalRequest{
			at: since.Add(last.rules.LostAfter), trigger: fleet.TriggerDisconnectTimeout, why: "wait no longer for node " + d.nodeName(last.a),
		})
	}
	return true
}

// isEmptiedByDeployment reports whether a deployment stopped the node's last allocation: the
// active one, or an earlier one whose newest version fits there now.
func (d *decision) isEmptiedByDeployment(p *nodeAllocs) bool {
	if !p.target || len(p.members) == 0 || p.currentOrUnknown() != nil {
		return false
	}
	last := p.members[len(p.members)-1]
	return d.isStoppedForUpdate(last) || d.needsUpdateOnReturn(last)
}

// needsUpdateOnReturn reports whether the node's last allocation stopped before it was the
// newest version and healthy, because its edge was away during the update, and the newest
// version fits now. A deployment then places it.
func (d *decision) needsUpdateOnReturn(last *member) bool {
	a := last.a
	unserved := d.needsDestructiveUpdate(a) || a.DeploymentID != "" && !a.DeploymentStatus.IsHealthy()
	return unserved && a.Vacated() && (d.in.Room == nil || d.in.Room(a))
}

// isLastAllocLost reports whether the node's last allocation of a sysbatch job was lost. Nobody
// knows how it ended, so it does not run again before the job changes.
func (d *decision) isLastAllocLost(p *nodeAllocs) bool {
	if !d.isBatchJob() || len(p.members) == 0 {
		return false
	}
	m := p.members[len(p.members)-1]
	return (m.kind == kindLost || m.a.WasGivenUp()) && p.target && !d.needsDestructiveUpdate(m.a)
}

// placeOnEmptyNode places the group on a node that has no allocation of it.
func (d *decision) placeOnEmptyNode(p *nodeAllocs, g *fleet.TaskGroup) {
	place := Placement{
		Name: allocName(d.in.JobID, g.Name, 0), Group: g.Name, Node: p.id, Canary: p.canary,
		Reason: fmt.Sprintf("group %s wants one on node %s", g.Name, nodeName(p.node)),
	}
	if m := p.newestOfKinds(kindLost, kindMigrating, kindEnded); m != nil && m.a.NextAllocation == "" {
		place.Previous = m.a
	}
	d.addPlacement(place)
}
