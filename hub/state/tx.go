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

	metas        working[metaRow]
	clusters     working[clusterRow]
	tokens       working[JoinToken]
	hubs         working[HubAddr]
	pools        working[fleet.Pool]
	certificates working[Certificate]
	revocations  working[fleet.Revocation]
	admissions   working[Admission]
	jobs         working[jobRow]
	bodies       working[bodyRow]
	nodes        working[nodeRow]
	allocs       working[allocRow]
	evals        working[fleet.Evaluation]
	jobRosters   working[jobRoster]
	nodeRosters  working[nodeRoster]
	desired      working[desiredRow]
	capacity     working[capacityRow]
	deployments  working[deploymentRow]
	happened     working[eventsRow]
	windows      working[windowRow]
	scheduling   working[fleet.SchedulerConfiguration]
	namespaces   working[fleet.Namespace]
	parts        working[partRow]
	restored     working[restoredRow]

	specBytes map[string]int // size of the specification that the entry registers, by its hash
}

func begin(db *memdb.MemDB, index fleet.Index) *tx {
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
	t.jobRosters.table = tableJobRosters
	t.nodeRosters.table = tableNodeRosters
	t.desired.table = tableDesired
	t.capacity.table = tableCapacity
	t.deployments.table = tableDeployments
	t.happened.table = tableEvents
	t.windows.table = tableWindow
	t.scheduling.table = tableScheduler
	t.namespaces.table = tableNamespaces
	t.parts.table = tableParts
	t.restored.table = tableRestored
	return t
}

// working is the part of one table that an entry changes.
type working[R any] struct {
	table string
	dirty map[string]*R // by key; nil: removed
}

// at returns the row as the entry has left it so far, or nil. It is shared
// unless this entry put it.
func (w *working[R]) at(t *tx, key []byte) *R {
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

// mine is like at, for a row that is only changed in place: the entry's own copy
// of it (made by clone on the first call), or nil.
func (w *working[R]) mine(t *tx, key []byte, clone func(*R) *R) *R {
	if r, ok := w.dirty[string(key)]; ok {
		return r
	}
	r := w.at(t, key)
	if r != nil {
		r = clone(r)
		w.put(key, r)
	}
	return r
}

func (w *working[R]) put(key []byte, r *R) {
	if w.dirty == nil {
		w.dirty = make(map[string]*R)
	}
	w.dirty[string(key)] = r
}

func (w *working[R]) remove(key []byte) { w.put(key, nil) }

func (w *working[R]) write(out *memdb.Txn) {
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

// bump notes that a table changed for whoever asks TableIndex.
func (t *tx) bump(table string) {
	t.metas.put(key(table), &metaRow{table, t.index})
}

func (t *tx) commit(db *memdb.MemDB) {
	t.settleRosters()
	t.recordEvents()
	t.metas.put(key(metaApplied), &metaRow{metaApplied, t.index})
	out := db.Txn(true)
	defer out.Abort()
	t.writeAll(out)
	out.Commit()
}

func (t *tx) writeAll(out *memdb.Txn) {
	t.metas.write(out)
	t.clusters.write(out)
	t.tokens.write(out)
	t.hubs.write(out)
	t.pools.write(out)
	t.certificates.write(out)
	t.revocations.write(out)
	t.admissions.write(out)
	t.jobs.write(out)
	t.bodies.write(out)
	t.nodes.write(out)
	t.allocs.write(out)
	t.evals.write(out)
	t.jobRosters.write(out)
	t.nodeRosters.write(out)
	t.desired.write(out)
	t.capacity.write(out)
	t.deployments.write(out)
	t.happened.write(out)
	t.windows.write(out)
	t.scheduling.write(out)
	t.namespaces.write(out)
	t.parts.write(out)
	t.restored.write(out)
}

// refused is a command that leaves the state alone.
func refused(code fleet.Code, format string, args ...any) Result {
	return Result{Err: fleet.Errorf(code, format, args...)}
}
