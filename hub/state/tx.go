package state

import (
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

	changed []any // by table: see table.changedRows

	specBytes map[string]int // size of the specification that the entry registers, by its hash
}

func beginEntry(db *memdb.MemDB, index fleet.Index) *tx {
	return &tx{index: index, base: db.Txn(false), changed: make([]any, len(tables))}
}

// markMeta notes that the entry changed what name says.
func (t *tx) markMeta(name string) { metaTable.putRow(t, &metaRow{name, t.index}) }

func (t *tx) commitEntry(db *memdb.MemDB) {
	t.finishSummaries()
	t.recordEvents()
	t.markMeta(metaApplied)
	out := db.Txn(true)
	defer out.Abort()
	t.writeAll(out)
	out.Commit()
}

func (t *tx) writeAll(out *memdb.Txn) {
	for _, tb := range tables {
		tb.writeChanges(t, out)
	}
}

// refused is a command that leaves the state alone.
func refused(code fleet.Code, format string, args ...any) Result {
	return Result{Err: fleet.Errorf(code, format, args...)}
}
