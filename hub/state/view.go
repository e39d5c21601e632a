package state

import (
	"context"
	"fmt"
	"iter"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// watchLimit is how many rows a View watches one by one; beyond it, it wakes with
// every entry.
const watchLimit = 1024

// View is a consistent picture of the state. What it returns is shared: read
// only. Lists are ordered by id (jobs: namespace, id). A View of Watch belongs to
// one goroutine, one of View may be used by many.
type View struct {
	txn   *memdb.Txn
	watch memdb.WatchSet // nil: nobody waits
}

// Changed blocks until something that was read from a Watch view has changed, or
// ctx is done (its error is returned). A single row that was read wakes for
// itself, a list for its table, allocations of a job or a node for those alone. A
// view of View remembers nothing, so that only ctx ends its wait.
func (v *View) Changed(ctx context.Context) error {
	if v.watch == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return v.watch.WatchCtx(ctx)
}

// Index is the newest applied entry. It is not watched: see Store.WaitIndex.
func (v *View) Index() fleet.Index {
	if r, ok := watchRow[metaRow](&View{txn: v.txn}, tableMeta, key(metaApplied)); ok {
		return r.index
	}
	return 0
}

// TableIndex is the newest entry that changed a table: "jobs", "nodes",
// "allocs", "evals", "deployments", "pools", "hubs", "tokens", "cluster",
// "certificates", "capacity", "scheduler", "namespaces", and "services" for the catalogue. How far a node's journal is in does
// not count as a change of "nodes".
func (v *View) TableIndex(table string) fleet.Index { return v.metaRowIndex(table) }

func (v *View) metaRowIndex(name string) fleet.Index {
	if r, ok := watchRow[metaRow](v, tableMeta, key(name)); ok {
		return r.index
	}
	return 0
}

// watchRow reads a row and watches it.
func watchRow[R any](v *View, table string, key []byte) (*R, bool) {
	ch, obj, err := v.txn.FirstWatch(table, indexID, key)
	if err != nil {
		panic(fmt.Sprintf("read %s: %v", table, err)) // constant schema
	}
	v.watchChannel(ch)
	if obj == nil {
		return nil, false
	}
	return obj.(*R), true
}

// watchChannel watches ch, or every entry where too much is watched already.
func (v *View) watchChannel(ch <-chan struct{}) {
	if v.watch == nil {
		return
	}
	if len(v.watch) < watchLimit {
		v.watch.Add(ch)
		return
	}
	all, _, err := v.txn.FirstWatch(tableMeta, indexID, key(metaApplied))
	if err != nil {
		panic(fmt.Sprintf("watch entries: %v", err)) // constant schema
	}
	v.watch.Add(all)
}

// watchTable lists the rows of a table whose keys of index begin with prefix, and
// watches the table as a whole.
func watchTable[R any](v *View, table, index string, prefix []byte) iter.Seq[*R] {
	v.metaRowIndex(table)
	return scanRows[R](v.txn, table, index, prefix)
}

// watchPrefix is like all, and watches only the rows that begin with prefix.
func watchPrefix[R any](v *View, table, index string, prefix []byte) iter.Seq[*R] {
	ch, _, err := v.txn.FirstWatch(table, index+"_prefix", prefix)
	if err != nil {
		panic(fmt.Sprintf("watch %s: %v", table, err)) // constant schema
	}
	v.watchChannel(ch)
	return scanRows[R](v.txn, table, index, prefix)
}

func scanRows[R any](txn *memdb.Txn, table, index string, prefix []byte) iter.Seq[*R] {
	return func(yield func(*R) bool) {
		it, err := txn.Get(table, index+"_prefix", prefix)
		if err != nil {
			panic(fmt.Sprintf("list %s: %v", table, err)) // constant schema
		}
		for obj := it.Next(); obj != nil; obj = it.Next() {
			if !yield(obj.(*R)) {
				return
			}
		}
	}
}

// watchRowsFrom lists the rows of a table whose keys of index are at least low.
func watchRowsFrom[R any](v *View, table, index string, low []byte) iter.Seq[*R] {
	v.metaRowIndex(table)
	return func(yield func(*R) bool) {
		it, err := v.txn.LowerBound(table, index, low)
		if err != nil {
			panic(fmt.Sprintf("list %s: %v", table, err)) // constant schema
		}
		for obj := it.Next(); obj != nil; obj = it.Next() {
			if !yield(obj.(*R)) {
				return
			}
		}
	}
}
