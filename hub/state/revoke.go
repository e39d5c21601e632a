package state

import (
	"iter"
	"slices"

	"skerry/fleet"
)

// NodeRevoke expels an edge for good (see fleet.Revocation): its certificates become invalid, its node
// goes down, and jobs with allocations there are evaluated. The node may be purged. Revoking it again
// changes nothing. With KeepExposure the state keeps what the edge knows (see Exposure); entries of older releases lack it.
type NodeRevoke struct {
	command
	NodeID       fleet.NodeID
	Reason       string
	KeepExposure bool
	EvalSeed     string
	Now          int64
}

var revocationTable = table[fleet.Revocation]{
	name: "revocations", key: func(r *fleet.Revocation) []byte { return idKey(r.NodeID) },
	records: []record[fleet.Revocation]{rowRecord[fleet.Revocation](110)},
}

// nodeRevoke applies the command NodeRevoke: it records the revocation of an edge with its certificates,
// and marks its node revoked and down if there is one.
func (t *tx) nodeRevoke(c NodeRevoke) Result {
	if t.revocationOf(c.NodeID) != nil {
		return Result{}
	}
	n := t.ownNodeRow(c.NodeID)
	r := &fleet.Revocation{
		NodeID: c.NodeID, Serials: t.serialsOf(c.NodeID), Reason: c.Reason, Time: c.Now, CreateIndex: t.index,
	}
	if n == nil && len(r.Serials) == 0 {
		return Result{Err: fleet.Errorf(fleet.CodeNotFound, "revoke node %s: there is no such node, and none ever got a certificate", c.NodeID).
			WithHint("a node that was purged is revoked by its whole id")}
	}
	w := pendingEvals{seed: c.EvalSeed, now: c.Now}
	if n != nil {
		r.Name = n.Name
		t.expelNode(n, r, &w)
	}
	if c.KeepExposure {
		t.keepExposure(c.NodeID, c.Now)
	}
	revocationTable.putRow(t, r)
	revocationTable.markChanged(t)
	return Result{Evals: t.storePendingEvals(&w)}
}

// expelNode marks a node (the entry's own copy) revoked and down. A new epoch makes the hub refuse its
// session. Its allocations that may still run become its orphans, because no hub can stop them.
func (t *tx) expelNode(n *nodeRow, r *fleet.Revocation, w *pendingEvals) {
	why := "revoked"
	if r.Reason != "" {
		why += ": " + r.Reason
	}
	n.Revoked = r
	n.Orphans = nil
	for _, id := range t.allocsOn(n.ID) {
		if a := t.currentAlloc(id); !a.EndedOnEdge() {
			n.Orphans = append(n.Orphans, id)
			w.requestEval(a.Namespace, a.JobID, fleet.TriggerNodeUpdate, &n.Node)
		}
	}
	slices.Sort(n.Orphans)
	if n.Epoch > 0 {
		n.Epoch++
	}
	if n.DisconnectedAt == 0 {
		n.DisconnectedAt = w.now
	}
	if n.DrainStrategy != nil {
		n.endDrain(fleet.DrainCanceled, w.now)
	}
	n.SchedulingEligibility = fleet.NodeIneligible
	t.setNodeStatus(n, fleet.NodeDown, why, w.now)
	n.addNodeEvent("Cluster", "Node "+why, w.now, t.index)
	t.recordNodeEvent(n, "revoked", r.Reason, w.now)
	t.recordOnAllocs(n, fleet.EventNodeDown, why, w.now)
}

// expelRevokedNodes revokes, after a restore, all nodes that were revoked in the state before it, and keeps their exposures.
func (t *tx) expelRevokedNodes(old *View, w *pendingEvals) {
	for e := range exposureTable.scanRows(old.txn) {
		exposureTable.putRow(t, e)
	}
	for r := range old.Revocations() {
		revocationTable.putRow(t, r)
		if n := t.ownNodeRow(r.NodeID); n != nil {
			t.expelNode(n, r, w)
		}
	}
}

// serialsOf returns the serials of all recorded certificates of an edge. The records include expired
// certificates.
func (t *tx) serialsOf(id fleet.NodeID) []string {
	var serials []string
	for c := range certificateTable.scanRows(t.base) {
		if c.Subject == subjectOf(id) {
			serials = append(serials, c.Serial)
		}
	}
	return serials
}

// subjectOf returns the common name of an edge's certificate.
func subjectOf(id fleet.NodeID) string { return fleet.RoleEdge + ":" + string(id) }

// revocationOf returns the revocation of a node, or nil if it is not revoked.
func (t *tx) revocationOf(id fleet.NodeID) *fleet.Revocation {
	return revocationTable.currentRow(t, idKey(id))
}

// refuseRevoked returns the refusal of a command for a revoked edge, or nil if the edge is not revoked.
// doing begins the error.
func (t *tx) refuseRevoked(doing string, id fleet.NodeID) *Result {
	if r := t.revocationOf(id); r != nil {
		return &Result{Err: RevokedError(doing, r)}
	}
	return nil
}

// RevokedError tells an edge that it was revoked, and how its machine can come back. doing begins the
// message.
func RevokedError(doing string, r *fleet.Revocation) *fleet.Error {
	why := ""
	if r.Reason != "" {
		why = ": " + r.Reason
	}
	return fleet.Errorf(fleet.CodeRevoked, "%s: node %s was revoked%s", doing, fleet.Short(r.NodeID), why).
		WithHint("its certificate is no longer valid; to bring this machine back, start it with an empty data directory and a new join token: it becomes another node")
}

// Revocation returns the revocation of a node; ok is false if it is not revoked.
func (v *View) Revocation(id fleet.NodeID) (*fleet.Revocation, bool) {
	return revocationTable.watchRow(v, idKey(id))
}

// Revocations iterates over the revoked nodes by id.
func (v *View) Revocations() iter.Seq[*fleet.Revocation] {
	return revocationTable.watchRows(v)
}
