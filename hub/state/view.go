package state

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// watchLimit is how many rows a View watches individually. A view that reads more wakes with every entry.
const watchLimit = 1024

// View is a consistent read-only view of the state. Callers must not change what it returns. Lists are
// ordered by id (jobs: by namespace, then id). One goroutine may use a view of Store.Watch, many a view of
// Store.View.
type View struct {
	txn   *memdb.Txn
	watch memdb.WatchSet // what Changed waits for; nil: reads are not recorded
}

// Changed blocks until something that was read from a Watch view has changed, or returns ctx's error. A
// row that was read by its key wakes for itself, a list for its table, the allocations of a job or node
// for those alone. On a view of Store.View it only waits for ctx.
func (v *View) Changed(ctx context.Context) error {
	if v.watch == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return v.watch.WatchCtx(ctx)
}

// Index returns the newest applied entry. It is not watched: use Store.WaitIndex to wait for an entry.
func (v *View) Index() fleet.Index {
	if r, ok := metaTable.watchRow(&View{txn: v.txn}, key(metaApplied)); ok {
		return r.index
	}
	return 0
}

// TableIndex returns the newest entry that changed a table, and watches it. Tables: "jobs", "nodes",
// "allocs", "evals", "deployments", "pools", "hubs", "tokens", "cluster", "certificates", "capacity",
// "scheduler", "namespaces", "root_keys", "variables", "acl", "acl_policies",
// "acl_roles", "acl_tokens", and "services" for the catalogue. Applied journal rows of a node do not count
// as a change of "nodes".
func (v *View) TableIndex(table string) fleet.Index { return v.watchMeta(table) }

// watchMeta returns the newest entry that changed the meta row name, and has v watch it. 0: there is no
// such row.
func (v *View) watchMeta(name string) fleet.Index {
	if r, ok := metaTable.watchRow(v, key(name)); ok {
		return r.index
	}
	return 0
}

// WakeFor makes Changed return, too, once ch is closed.
func (v *View) WakeFor(ch <-chan struct{}) { v.watchChannel(ch) }

// watchChannel has v watch ch. If v watches watchLimit channels already, it watches every entry instead.
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
