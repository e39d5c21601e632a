package state

import (
	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// tx is the application of one log entry: the state before the entry, and the rows that it changes so far.
// Each changed row is written once, at commit.
// Maps in here are never iterated where the order would show: the rows go into tables that order them.
type tx struct {
	index  fleet.Index // of the log entry
	base   *memdb.Txn  // the state before the entry
	lookup *lookup     // of reads from base

	changed []any // for each table a map of its changed rows: see table.changedRows

	specBytes map[string]int // size of the specification that the entry registers, by its hash
}

// beginEntry starts the application of the log entry index to db. Nothing is written before commitEntry.
func beginEntry(db *memdb.MemDB, index fleet.Index) *tx {
	return &tx{index: index, base: db.Txn(false), lookup: newLookup(), changed: make([]any, len(tables))}
}

// markMeta sets the index of the meta row name to this entry. Views that watch the name wake at commit.
func (t *tx) markMeta(name string) { metaTable.putRow(t, &metaRow{name, t.index}) }

// commitEntry derives summaries, job statuses and events from the changed rows, and writes all of them to
// db in one transaction.
func (t *tx) commitEntry(db *memdb.MemDB) {
	t.finishSummaries()
	t.recordEvents()
	t.markMeta(metaApplied)
	out := db.Txn(true)
	defer out.Abort()
	t.writeAll(out)
	out.Commit()
}

// writeAll writes the changed rows of all tables to out.
func (t *tx) writeAll(out *memdb.Txn) {
	for _, tb := range tables {
		tb.writeChanges(t, out)
	}
}

// refusal returns the Result of a command that is refused with an error of that code.
func refusal(code fleet.Code, format string, args ...any) Result {
	return Result{Err: fleet.Errorf(code, format, args...)}
}
