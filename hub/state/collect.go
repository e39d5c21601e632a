package state

import (
	"skerry/fleet"
)

// Collect removes what nobody needs any more: allocations that their edges have
// finished with, evaluations that are over, jobs that are dead, nodes that are down.
// What has changed since the collector looked is left out.
type Collect struct {
	command
	Allocs []fleet.AllocID
	Evals  []fleet.EvalID
	// Deployments that are over.
	Deployments []fleet.DeploymentID
	Jobs        []CollectedJob
	Nodes       []CollectedNode
	Now         int64
}

// CollectedJob names a job as it was when it was looked at.
type CollectedJob struct {
	Namespace   string
	ID          fleet.JobID
	ModifyIndex fleet.Index
}

// CollectedNode names a node as it was when it was looked at.
type CollectedNode struct {
	ID    fleet.NodeID
	Epoch fleet.Epoch
}

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

// isCollectable reports whether an allocation is over for good: one that is out of sight
// is not, nor one that was given up and that its edge may still be running, unless
// the node was purged or revoked.
func (t *tx) isCollectable(a *fleet.Alloc) bool {
	n := nodeTable.currentRow(t, idKey(a.NodeID))
	return a.ClientTerminal() && (!a.OccupiesNode() || n == nil || n.Revoked != nil)
}

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
