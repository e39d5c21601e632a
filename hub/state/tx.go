package state

import (
	"fmt"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// tx is one entry being applied: the state before it, and the rows that it
// changes. Rows are written once, at commit, however often they changed.
//
// What is held in maps here is never iterated where the order would show: rows go
// into tables that order them.
type tx struct {
	index fleet.Index
	base  *memdb.Txn

	metas         entryRows[metaRow]
	clusters      entryRows[clusterRow]
	tokens        entryRows[JoinToken]
	hubs          entryRows[HubAddr]
	pools         entryRows[fleet.Pool]
	certificates  entryRows[Certificate]
	revocations   entryRows[fleet.Revocation]
	admissions    entryRows[Admission]
	jobs          entryRows[jobRow]
	bodies        entryRows[bodyRow]
	nodes         entryRows[nodeRow]
	allocs        entryRows[allocRow]
	evals         entryRows[fleet.Evaluation]
	jobSummaries  entryRows[jobAllocSummary]
	nodeSummaries entryRows[nodeAllocSummary]
	desired       entryRows[desiredRow]
	capacity      entryRows[capacityRow]
	deployments   entryRows[deploymentRow]
	eventRows     entryRows[eventsRow]
	windows       entryRows[windowRow]
	scheduling    entryRows[fleet.SchedulerConfiguration]
	namespaces    entryRows[fleet.Namespace]
	parts         entryRows[partRow]
	restored      entryRows[restoredRow]

	specBytes map[string]int // size of the specification that the entry registers, by its hash
}

func beginEntry(db *memdb.MemDB, index fleet.Index) *tx {
	t := &tx{index: index, base: db.Txn(false)}
	t.metas.table = tableMeta
	t.clusters.table = tableCluster
	t.tokens.table = tableTokens
	t.hubs.table = tableHubs
	t.pools.table = tablePools
	t.certificates.table = tableCertificates
	t.revocations.table = tableRevocations
	t.admissions.table = tableAdmissions
	t.jobs.table = tableJobs
	t.bodies.table = tableBodies
	t.nodes.table = tableNodes
	t.allocs.table = tableAllocs
	t.evals.table = tableEvals
	t.jobSummaries.table = tableJobSummaries
	t.nodeSummaries.table = tableNodeSummaries
	t.desired.table = tableDesired
	t.capacity.table = tableCapacity
	t.deployments.table = tableDeployments
	t.eventRows.table = tableEvents
	t.windows.table = tableWindow
	t.scheduling.table = tableScheduler
	t.namespaces.table = tableNamespaces
	t.parts.table = tableParts
	t.restored.table = tableRestored
	return t
}

// entryRows is the part of one table that an entry changes.
type entryRows[R any] struct {
	table string
	dirty map[string]*R // by key; nil: removed
}

// currentRow returns the row as the entry has left it so far, or nil. It is shared
// unless this entry put it.
func (w *entryRows[R]) currentRow(t *tx, key []byte) *R {
	if r, ok := w.dirty[string(key)]; ok {
		return r
	}
	obj, err := t.base.First(w.table, indexID, key)
	if err != nil {
		panic(fmt.Sprintf("read %s: %v", w.table, err)) // constant schema
	}
	if obj == nil {
		return nil
	}
	return obj.(*R)
}

// ownRow is like at, for a row that is only changed in place: the entry's own copy
// of it (made by clone on the first call), or nil.
func (w *entryRows[R]) ownRow(t *tx, key []byte, clone func(*R) *R) *R {
	if r, ok := w.dirty[string(key)]; ok {
		return r
	}
	r := w.currentRow(t, key)
	if r != nil {
		r = clone(r)
		w.putRow(key, r)
	}
	return r
}

func (w *entryRows[R]) putRow(key []byte, r *R) {
	if w.dirty == nil {
		w.dirty = make(map[string]*R)
	}
	w.dirty[string(key)] = r
}

func (w *entryRows[R]) removeRow(key []byte) { w.putRow(key, nil) }

func (w *entryRows[R]) writeRows(out *memdb.Txn) {
	for k, r := range w.dirty {
		var err error
		if r != nil {
			err = out.Insert(w.table, r)
		} else if old, _ := out.First(w.table, indexID, []byte(k)); old != nil {
			err = out.Delete(w.table, old)
		}
		if err != nil {
			panic(fmt.Sprintf("write %s %q: %v", w.table, k, err)) // constant schema
		}
	}
}

// markTableChanged notes that a table changed for whoever asks TableIndex.
func (t *tx) markTableChanged(table string) {
	t.metas.putRow(key(table), &metaRow{table, t.index})
}

func (t *tx) commitEntry(db *memdb.MemDB) {
	t.finishSummaries()
	t.recordEvents()
	t.metas.putRow(key(metaApplied), &metaRow{metaApplied, t.index})
	out := db.Txn(true)
	defer out.Abort()
	t.writeAll(out)
	out.Commit()
}

func (t *tx) writeAll(out *memdb.Txn) {
	t.metas.writeRows(out)
	t.clusters.writeRows(out)
	t.tokens.writeRows(out)
	t.hubs.writeRows(out)
	t.pools.writeRows(out)
	t.certificates.writeRows(out)
	t.revocations.writeRows(out)
	t.admissions.writeRows(out)
	t.jobs.writeRows(out)
	t.bodies.writeRows(out)
	t.nodes.writeRows(out)
	t.allocs.writeRows(out)
	t.evals.writeRows(out)
	t.jobSummaries.writeRows(out)
	t.nodeSummaries.writeRows(out)
	t.desired.writeRows(out)
	t.capacity.writeRows(out)
	t.deployments.writeRows(out)
	t.eventRows.writeRows(out)
	t.windows.writeRows(out)
	t.scheduling.writeRows(out)
	t.namespaces.writeRows(out)
	t.parts.writeRows(out)
	t.restored.writeRows(out)
}

// refused is a command that leaves the state alone.
func refused(code fleet.Code, format string, args ...any) Result {
	return Result{Err: fleet.Errorf(code, format, args...)}
}
