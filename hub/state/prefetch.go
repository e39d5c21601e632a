package state

import (
	"iter"
	"slices"

	"skerry/fleet"
)

// PrefetchStore has nodes fetch the artifacts and images of a version of a job, in place of an earlier version. A
// repeated request has its nodes check their contents again. If one node is refused, the whole command is.
type PrefetchStore struct {
	command
	Namespace  string
	JobID      fleet.JobID
	JobVersion uint64
	Nodes      []fleet.NodeID
	Now        int64 // UnixNano
}

// PrefetchEnd has nodes let go the contents of prefetches. A prefetch is removed when its node has done so, or at once
// if the node is gone or revoked.
type PrefetchEnd struct {
	command
	Prefetches []EndedPrefetch
	Now        int64
}

// EndedPrefetch is a prefetch to end, unless it was requested again since RequestIndex.
type EndedPrefetch struct {
	ID           fleet.PrefetchID
	RequestIndex fleet.Index
}

// Bounds of prefetches.
const (
	MaxPrefetchesOnNode = 20
	// MaxPrefetchNodes bounds the nodes of one command.
	MaxPrefetchNodes = 1000
)

var prefetchTable = table[fleet.Prefetch]{
	name: "prefetches", announced: true,
	key: func(r *fleet.Prefetch) []byte { return idKey(r.ID) },
	indexes: []tableIndex[fleet.Prefetch]{
		{indexNode, func(r *fleet.Prefetch) []byte { return append(idKey(r.NodeID), idKey(r.ID)...) }, nil},
		{indexJob, func(r *fleet.Prefetch) []byte { return append(jobKeyOf(r.Namespace, r.JobID), idKey(r.ID)...) }, nil},
	},
	records: []record[fleet.Prefetch]{rowRecord[fleet.Prefetch](121)},
}

// prefetchStore applies the command PrefetchStore.
func (t *tx) prefetchStore(c PrefetchStore) Result {
	row := jobTable.currentRow(t, jobKeyOf(c.Namespace, c.JobID))
	if row == nil {
		return refusal(fleet.CodeNotFound, "prefetch job %s: there is no such job", c.JobID)
	}
	at := slices.IndexFunc(row.versions, func(j *fleet.Job) bool { return j.Version == c.JobVersion })
	switch {
	case at < 0:
		return refusal(fleet.CodeNotFound, "prefetch job %s: its version %d is not kept", c.JobID, c.JobVersion)
	case row.job.Stop:
		return Result{Err: fleet.Errorf(fleet.CodeConflict, "prefetch job %s: it is stopped", c.JobID).WithHint("start it first: skerry job start")}
	case len(c.Nodes) > MaxPrefetchNodes:
		return refusal(fleet.CodeInvalid, "prefetch job %s: %d nodes at once: at most %d are allowed", c.JobID, len(c.Nodes), MaxPrefetchNodes)
	}
	for _, node := range c.Nodes {
		if err := t.checkPrefetch(c, node); err != nil {
			return Result{Err: err}
		}
	}
	for _, node := range c.Nodes {
		next := fleet.Prefetch{
			ID: fleet.PrefetchIDOf(c.Namespace, c.JobID, node), Namespace: c.Namespace, JobID: c.JobID, JobVersion: c.JobVersion, NodeID: node,
			State: fleet.PrefetchPending, JobHash: row.versions[at].SpecHash, CreateIndex: t.index, CreateTime: c.Now,
		}
		if old := prefetchTable.currentRow(t, idKey(next.ID)); old != nil {
			next.CreateIndex = old.CreateIndex
		}
		t.requestPrefetch(next, c.Now)
	}
	prefetchTable.markChanged(t)
	return Result{}
}

// checkPrefetch returns why a node cannot get a prefetch, or nil.
func (t *tx) checkPrefetch(c PrefetchStore, node fleet.NodeID) *fleet.Error {
	n := nodeTable.currentRow(t, idKey(node))
	if n == nil {
		return fleet.Errorf(fleet.CodeNotFound, "prefetch job %s: there is no node %q", c.JobID, node)
	}
	if r := t.revocationOf(node); r != nil {
		return RevokedError("prefetch job "+string(c.JobID), r)
	}
	others := 0
	for p := range prefetchTable.scanPrefix(t.base, indexNode, idKey(node)) {
		if p.JobID != c.JobID || p.Namespace != c.Namespace {
			others++
		}
	}
	if others >= MaxPrefetchesOnNode {
		return fleet.Errorf(fleet.CodeConflict, "prefetch job %s: node %s keeps the contents of %d other jobs already", c.JobID, n.Name, others).
			WithHint("end prefetches of jobs that need none: skerry job prefetch --cancel")
	}
	return nil
}

// requestPrefetch stores a prefetch, and marks it to be sent to its node.
func (t *tx) requestPrefetch(p fleet.Prefetch, now int64) {
	p.RequestIndex, p.ModifyIndex, p.ModifyTime = t.index, t.index, now
	prefetchTable.putRow(t, &p)
	t.noteDesiredChange(p.NodeID)
}

// prefetchEnd applies the command PrefetchEnd.
func (t *tx) prefetchEnd(c PrefetchEnd) Result {
	for _, e := range c.Prefetches {
		old := prefetchTable.currentRow(t, idKey(e.ID))
		switch {
		case old == nil || old.RequestIndex != e.RequestIndex:
			continue
		case nodeTable.currentRow(t, idKey(old.NodeID)) == nil || t.revocationOf(old.NodeID) != nil:
			prefetchTable.removeRow(t, idKey(e.ID))
		case !old.Ending:
			next := *old
			next.Ending, next.StateDescription = true, "waits for its node to let the contents go"
			t.requestPrefetch(next, c.Now)
		}
	}
	prefetchTable.markChanged(t)
	return Result{}
}

// applyPrefetchReport applies an edge's report about a prefetch. A report about an older request changes nothing.
func (t *tx) applyPrefetchReport(n *nodeRow, tr *fleet.Transition, now int64) {
	said := tr.Prefetch
	old := prefetchTable.currentRow(t, idKey(said.ID))
	if old == nil || old.NodeID != n.ID || old.RequestIndex != said.RequestIndex {
		return
	}
	next := *old
	next.ModifyIndex, next.ModifyTime = t.index, now
	switch {
	case said.State == "" && old.Ending:
		prefetchTable.removeRow(t, idKey(said.ID))
		prefetchTable.markChanged(t)
		return
	case old.Ending:
		return
	case said.State == "":
		next.State, next.StateDescription = fleet.PrefetchFailed, tr.Message
	case said.State == fleet.PrefetchFetching, said.State == fleet.PrefetchDone, said.State == fleet.PrefetchFailed:
		next.State, next.StateDescription = said.State, tr.Message
	default:
		return // a newer release has other states
	}
	prefetchTable.putRow(t, &next)
	prefetchTable.markChanged(t)
}

// keepPrefetches keeps the prefetches that were requested after the snapshot, and has all sent to the edges again: the
// edges may have let contents go since.
func (t *tx) keepPrefetches(old *View, now int64) {
	for p := range prefetchTable.scanRows(t.base) {
		t.requestPrefetch(*p, now)
	}
	for p := range prefetchTable.scanRows(old.txn) {
		if prefetchTable.currentRow(t, idKey(p.ID)) == nil && nodeTable.currentRow(t, idKey(p.NodeID)) != nil {
			t.requestPrefetch(*p, now)
		}
	}
}

// PrefetchesOf iterates over the prefetches of a job, by id.
func (v *View) PrefetchesOf(ns string, id fleet.JobID) iter.Seq[*fleet.Prefetch] {
	return prefetchTable.watchTable(v, indexJob, jobKeyOf(ns, id))
}

// PrefetchesOn iterates over the prefetches of a node without watching them: DesiredIndex tells changes.
func (v *View) PrefetchesOn(id fleet.NodeID) iter.Seq[*fleet.Prefetch] {
	return prefetchTable.scanPrefix(v.txn, indexNode, idKey(id))
}

// Prefetches iterates over all prefetches without watching them.
func (v *View) Prefetches() iter.Seq[*fleet.Prefetch] { return prefetchTable.scanRows(v.txn) }
