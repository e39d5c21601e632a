package state

import (
	"context"
	"fmt"

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
	if r, ok := metaTable.watchRow(&View{txn: v.txn}, key(metaApplied)); ok {
		return r.index
	}
	return 0
}

// TableIndex is the newest entry that changed a table: "jobs", "nodes",
// "allocs", "evals", "deployments", "pools", "hubs", "tokens", "cluster",
// "certificates", "capacity", "scheduler", "namespaces", and "services" for the catalogue. How far a node's journal is in does
// not count as a change of "nodes".
func (v *View) TableIndex(table string) fleet.Index { return v.watchMeta(table) }

func (v *View) watchMeta(name string) fleet.Index {
	if r, ok := metaTable.watchRow(v, key(name)); ok {
		return r.index
	}
	return 0
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
	all, _, err := v.txn.FirstWatch(metaTable.name, indexID, key(metaApplied))
	if err != nil {
		panic(fmt.Sprintf("watch entries: %v", err)) // constant schema
	}
	v.watch.Add(all)
}
