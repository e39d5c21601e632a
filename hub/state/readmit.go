package state

import "skerry/fleet"

// NodeReadmit lets an edge continue although its journal is an older copy of the applied one, or a fork of it, because
// its data directory was restored.
type NodeReadmit struct {
	command
	NodeID fleet.NodeID
	Now    int64
}

// nodeReadmit applies the command NodeReadmit: it lets an edge continue with an older or forked journal.
// The permission ends when rows of the edge are applied.
func (t *tx) nodeReadmit(c NodeReadmit) Result {
	n := t.ownNodeRow(c.NodeID)
	switch {
	case n == nil:
		return refusal(fleet.CodeNotFound, "readmit node %s: there is no such node", fleet.Short(c.NodeID))
	case n.Revoked != nil:
		return refusal(fleet.CodeConflict, "readmit node %s: it was revoked", fleet.Short(c.NodeID))
	case n.Readmit:
		return Result{}
	}
	n.Readmit = true
	t.nodeChanged(n)
	n.addNodeEvent("Cluster", "Node readmitted: its edge may go on with an older copy of its journal", c.Now, t.index)
	t.recordNodeEvent(n, "readmitted", "", c.Now)
	return Result{}
}
