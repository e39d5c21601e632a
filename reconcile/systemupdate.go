package reconcile

import (
	"fmt"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// unsuitableReason returns why a node does not suit the newest version of a group; "": it does.
func (d *decision) unsuitableReason(n *fleet.Node, g *fleet.TaskGroup) string {
	reason, _ := d.checkSuits(n, g)
	return reason
}

// leaveReason returns why what runs on a node has to leave it for the newest version of a group; "": it may stay, also
// for a reason that may end by itself.
func (d *decision) leaveReason(n *fleet.Node, g *fleet.TaskGroup) string {
	reason, passing := d.checkSuits(n, g)
	if passing {
		return ""
	}
	return reason
}

// checkSuits returns what Input.Suits says of a node, after checks of its pool and its datacenter.
func (d *decision) checkSuits(n *fleet.Node, g *fleet.TaskGroup) (reason string, passing bool) {
	switch {
	case n == nil:
		return "it was removed", false
	case !d.in.Job.InPool(n.NodePool):
		return "node pool " + n.NodePool, false
	case !d.in.Job.InDatacenter(n.Datacenter):
		return "datacenter " + n.Datacenter, false
	case d.in.Suits == nil:
		return "", false
	}
	return d.in.Suits(n, g.Name)
}

// reconcileCurrentOnNode decides for the current allocation of a node, and reports whether the
// job still wants one there.
func (d *decision) reconcileCurrentOnNode(p *nodeAllocs, g *fleet.TaskGroup, r *rollout) bool {
	m := p.current
	change := d.groupChangeFor(m.a)
	// The newest version stays when a driver or an attribute of its node disappears. It stops
	// only on a node that is outside of the job's pool or datacenters.
	outside := p.node != nil && !(d.in.Job.InPool(p.node.NodePool) && d.in.Job.InDatacenter(p.node.Datacenter))
	unsuited := ""
	if change != diff.GroupSame || outside {
		unsuited = d.leaveReason(p.node, g)
	}
	ready, wanted := p.node != nil && p.node.Status == fleet.NodeReady, true
	switch {
	case m.kind == kindSucceeded && !d.needsDestructiveUpdate(m.a):
		d.keepOrReconnect(m, "it has completed")
	case change != diff.GroupSame && (unsuited != "" || d.needsDestructiveUpdate(m.a) && ready && !p.target) && r.outsideWindowReason(m) != "":
		d.keepOrReconnect(m, fmt.Sprintf("version %d of the job takes it away when a window of node %s opens", d.in.Job.Version, d.nodeName(m.a)))
	case unsuited != "":
		wanted = false
		d.stopOrRetire(m, Change{Reason: fmt.Sprintf("node %s is not one for version %d of the job: %s", d.nodeName(m.a), d.in.Job.Version, unsuited)})
	case d.needsDestructiveUpdate(m.a) && ready && !p.target:
		wanted = false
		d.stopOrRetire(m, Change{Reason: fmt.Sprintf("version %d of the job changes its tasks, and node %s takes no new work", d.in.Job.Version, d.nodeName(m.a))})
	case d.needsDestructiveUpdate(m.a) && !p.target:
		d.keepOrReconnect(m, fmt.Sprintf("it has ended, and its node is away: version %d of the job comes when it is back", d.in.Job.Version))
	case d.needsDestructiveUpdate(m.a):
		d.updateAllocOnNode(m, g, r)
	case m.kind == kindFailed, m.kind == kindCompleted:
		d.restartEndedAlloc(p, g)
		wanted = p.target || !ready || d.isBatchJob() && !m.a.StoppedOnEdge // otherwise it is not replaced
	case m.reconnecting:
		d.reconnectAlloc(m, Change{Update: r.needsInPlaceUpdate(m, change), Reason: fmt.Sprintf("node %s is back", d.nodeName(m.a))})
	case r.needsInPlaceUpdate(m, change):
		d.updateInPlace(m, change)
	default:
		d.keepUnchanged(m, m.keptReason())
	}
	return wanted
}

// updateAllocOnNode replaces an allocation by the newest version, if the group's update rules
// allow it now. An allocation that no longer runs does not wait for its turn.
func (d *decision) updateAllocOnNode(m *member, g *fleet.TaskGroup, r *rollout) {
	if r.canaryTurns > 0 {
		if why := r.outsideWindowReason(m); why != "" {
			d.keepOrReconnect(m, fmt.Sprintf("waits to become version %d: %s", d.in.Job.Version, why))
			return
		}
	}
	canary := r.takeCanaryTurn(m)
	if !canary {
		if ok, wait := r.takeUpdateTurn(m); !ok {
			d.keepOrReconnect(m, fmt.Sprintf("waits for its turn to become version %d: %s", d.in.Job.Version, wait))
			return
		}
	}
	why := fmt.Sprintf("version %d of the job changes its tasks", d.in.Job.Version)
	d.stopOrRetire(m, Change{Destructive: true, WithPlacement: !m.reconnecting, Windows: updateWindows(g), Reason: why})
	d.addPlacement(Placement{
		Name: allocName(d.in.JobID, g.Name, 0), Group: g.Name, Node: m.a.NodeID, Previous: m.a, Canary: canary,
		Reason: fmt.Sprintf("replaces %s: %s", fleet.Short(m.a.ID), why),
	})
}
