package state

import (
	"skerry/fleet"
)

// Collect removes objects that are no longer needed: ended allocations, terminal evaluations, deployments
// that are over, dead jobs, nodes that are down. An object that has changed since the collector read it,
// so that it may be needed again, is skipped.
type Collect struct {
	command
	Allocs []fleet.AllocID
	Evals  []fleet.EvalID
	// Deployments names deployments that are not active.
	Deployments []fleet.DeploymentID
	Jobs        []CollectedJob
	Nodes       []CollectedNode
	Now         int64
}

// CollectedJob names a job to remove. The job is skipped if its ModifyIndex is another one by now.
type CollectedJob struct {
	Namespace   string
	ID          fleet.JobID
	ModifyIndex fleet.Index
}

// CollectedNode names a node to remove. The node is skipped if it has got another epoch by now.
type CollectedNode struct {
	ID    fleet.NodeID
	Epoch fleet.Epoch
}

// collectGarbage applies the command Collect: it removes the named objects that are still unneeded, and
// skips the others.
func (t *tx) collectGarbage(c Collect) Result {
	for _, id := range c.Allocs {
		if a := t.currentAlloc(id); a != nil && t.isCollectable(&a.Alloc) {
			t.dropAlloc(a)
		}
	}
	for _, id := range c.Evals {
		k := idKey(id)
		if e := evalTable.currentRow(t, k); e != nil && e.Terminal() {
			t.ownJobSummary(e.Namespace, e.JobID)
			evalTable.removeRow(t, k)
			evalTable.markChanged(t)
		}
	}
	for _, id := range c.Deployments {
		k := idKey(id)
		if d := deploymentTable.currentRow(t, k); d != nil && !d.Active() {
			deploymentTable.removeRow(t, k)
			deploymentTable.markChanged(t)
		}
	}
	for _, j := range c.Jobs {
		t.collectJob(j)
	}
	for _, n := range c.Nodes {
		t.collectNode(n)
	}
	return Result{}
}

// isCollectable reports whether an allocation may be removed: it is terminal, and its edge has confirmed
// its end. The confirmation is not needed where the node was purged or revoked.
func (t *tx) isCollectable(a *fleet.Alloc) bool {
	n := nodeTable.currentRow(t, idKey(a.NodeID))
	return a.ClientTerminal() && (!a.OccupiesNode() || n == nil || n.Revoked != nil)
}

// collectJob removes a dead job and its versions, unless it changed, or has an open evaluation or an
// allocation.
func (t *tx) collectJob(c CollectedJob) {
	k := jobKeyOf(c.Namespace, c.ID)
	row := jobTable.currentRow(t, k)
	if row == nil || row.job.ModifyIndex != c.ModifyIndex || row.job.Status != fleet.JobStatusDead {
		return
	}
	if r := jobSummaryTable.currentRow(t, k); r != nil && (r.open > 0 || len(r.allocs)+len(r.added) > len(r.removed)) {
		return
	}
	for _, v := range row.versions {
		t.addBodyRefs(v, -1)
	}
	jobTable.removeRow(t, k)
	jobTable.markChanged(t)
}

// collectNode removes a node that is down, unless it has a new epoch or an allocation.
func (t *tx) collectNode(c CollectedNode) {
	n := nodeTable.currentRow(t, idKey(c.ID))
	if n == nil || n.Epoch != c.Epoch || n.Status != fleet.NodeDown {
		return
	}
	if r := nodeSummaryTable.currentRow(t, idKey(c.ID)); r != nil && len(r.allocs)+len(r.added) > len(r.removed) {
		return
	}
	t.removeNode(c.ID, true)
}
