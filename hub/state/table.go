package state

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/hashicorp/go-memdb"
)

// table is one table of the state. Only its declaration says how its rows are named, ordered,
// saved and described; the variable tables lists it. A committed row never changes. The
// functions of a declaration use no other table.
type table[R any] struct {
	name    string
	key     func(*R) []byte // the row's unique key, made by func key or its kin; rows are ordered by it
	indexes []tableIndex[R]
	records []record[R] // how rows are saved in a snapshot; none: deriveRows makes them from other tables
	// describe writes a row as lines of text (View.Describe); nil writes its JSON.
	describe func(d *describer, table string, r *R)
	// An announced table has a row in metaTable from the beginning. A view that reads the whole table
	// wakes only for changes of this table.
	announced bool
	// An undigested table is part of neither View.Digest nor View.Describe.
	undigested bool

	position int // position in tables, and in tx.changed
}

// anyTable is a table without its row type, for code that handles all tables.
type anyTable interface {
	tableName() string
	isAnnounced() bool
	isDigested() bool
	setPosition(position int)
	memdbSchema() *memdb.TableSchema
	recordNumbers() []byte
	loadRecord(in *loader, number byte, body []byte) (known bool, err error)
	persistRows(txn *memdb.Txn, out *recordWriter)
	describeRows(txn *memdb.Txn, d *describer)
	writeChanges(t *tx, out *memdb.Txn)
}

func (tb *table[R]) tableName() string        { return tb.name }
func (tb *table[R]) isAnnounced() bool        { return tb.announced }
func (tb *table[R]) isDigested() bool         { return !tb.undigested }
func (tb *table[R]) setPosition(position int) { tb.position = position }

// currentRow returns the row as this entry has left it so far, or nil if there is none. The caller must
// not change it: it may be shared with committed states.
func (tb *table[R]) currentRow(t *tx, key []byte) *R {
	if r, ok := tb.changedRows(t)[string(key)]; ok {
		return r
	}
	return tb.rowBeforeEntry(t, key)
}

// rowBeforeEntry returns the row as it was before this entry, or nil if there was none.
func (tb *table[R]) rowBeforeEntry(t *tx, key []byte) *R {
	t.lookup.key = key
	return tb.lookUpRow(t.base, t.lookup)
}

// lookUpRow returns the row of l's key without watching it, or nil if there is none.
func (tb *table[R]) lookUpRow(txn *memdb.Txn, l *lookup) *R {
	obj, err := txn.First(tb.name, indexID, l.args...)
	if err != nil {
		panic(fmt.Sprintf("read %s: %v", tb.name, err)) // constant schema
	}
	if obj == nil {
		return nil
	}
	return obj.(*R)
}

// ownRow returns a copy of the row that this entry may change in place, or nil if there is none. The first
// call makes the copy with clone and puts it among the changed rows; later calls return the same copy.
func (tb *table[R]) ownRow(t *tx, key []byte, clone func(*R) *R) *R {
	if r, ok := tb.changedRows(t)[string(key)]; ok {
		return r
	}
	r := tb.rowBeforeEntry(t, key)
	if r != nil {
		r = clone(r)
		tb.setRow(t, key, r)
	}
	return r
}

// putRow makes r a changed row of this entry: it is inserted, or replaces the row of the same key, at
// commit.
func (tb *table[R]) putRow(t *tx, r *R) { tb.setRow(t, tb.key(r), r) }

// removeRow marks the row of a key as removed by this entry. A key without a row is allowed.
func (tb *table[R]) removeRow(t *tx, key []byte) { tb.setRow(t, key, nil) }

// setRow records r as the changed row of a key; nil: removed.
func (tb *table[R]) setRow(t *tx, key []byte, r *R) {
	changed := tb.changedRows(t)
	if changed == nil {
		changed = map[string]*R{}
		t.changed[tb.position] = changed
	}
	changed[string(key)] = r
}

// changedRows returns the rows that the entry has changed so far, by key. A nil row is removed. The map is
// nil if nothing changed.
func (tb *table[R]) changedRows(t *tx) map[string]*R {
	changed, _ := t.changed[tb.position].(map[string]*R)
	return changed
}

// changesInOrder iterates over changedRows in the order of their keys.
func (tb *table[R]) changesInOrder(t *tx) iter.Seq2[string, *R] {
	return inKeyOrder(tb.changedRows(t))
}

// inKeyOrder iterates over a map in the order of its keys.
func inKeyOrder[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
		slices.Sort(keys)
		for _, k := range keys {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// replaceRows replaces all rows of the table by the rows that the table has in the view old.
func (tb *table[R]) replaceRows(t *tx, old *View) {
	for r := range tb.scanRows(t.base) {
		tb.removeRow(t, tb.key(r))
	}
	for r := range tb.scanRows(old.txn) {
		tb.putRow(t, r)
	}
}

// markChanged makes this entry the table's newest change (View.TableIndex), and wakes views that watch the
// whole table.
func (tb *table[R]) markChanged(t *tx) { t.markMeta(tb.name) }

// writeChanges writes the changed rows of this table to out.
func (tb *table[R]) writeChanges(t *tx, out *memdb.Txn) {
	for k, r := range tb.changedRows(t) {
		var err error
		if r != nil {
			err = out.Insert(tb.name, r)
		} else if old, _ := out.First(tb.name, indexID, []byte(k)); old != nil {
			err = out.Delete(tb.name, old)
		}
		if err != nil {
			panic(fmt.Sprintf("write %s %q: %v", tb.name, k, err)) // constant schema
		}
	}
}

// watchRow returns the row of a key, and has v watch it. ok is false if there is none.
func (tb *table[R]) watchRow(v *View, key []byte) (*R, bool) {
	ch, obj, err := v.txn.FirstWatch(tb.name, indexID, key)
	if err != nil {
		panic(fmt.Sprintf("read %s: %v", tb.name, err)) // constant schema
	}
	v.watchChannel(ch)
	if obj == nil {
		return nil, false
	}
	return obj.(*R), true
}

// indexedRow returns the row of a key in a further index without watching it, or nil if there is none.
func (tb *table[R]) indexedRow(txn *memdb.Txn, index string, key []byte) *R {
	obj, err := txn.First(tb.name, index, key)
	if err != nil {
		panic(fmt.Sprintf("read %s by %s: %v", tb.name, index, err)) // constant schema
	}
	if obj == nil {
		return nil
	}
	return obj.(*R)
}

// watchRows iterates over all rows, and has v watch the whole table.
func (tb *table[R]) watchRows(v *View) iter.Seq[*R] { return tb.watchTable(v, indexID, nil) }

// watchTable iterates over the rows whose key in the index begins with prefix, and has v watch the whole
// table.
func (tb *table[R]) watchTable(v *View, index string, prefix []byte) iter.Seq[*R] {
	v.watchMeta(tb.name)
	return tb.scanPrefix(v.txn, index, prefix)
}

// watchPrefix is like watchTable, but v watches only the rows whose key begins with prefix.
func (tb *table[R]) watchPrefix(v *View, index string, prefix []byte) iter.Seq[*R] {
	ch, _, err := v.txn.FirstWatch(tb.name, index+"_prefix", prefix)
	if err != nil {
		panic(fmt.Sprintf("watch %s: %v", tb.name, err)) // constant schema
	}
	v.watchChannel(ch)
	return tb.scanPrefix(v.txn, index, prefix)
}

// watchFrom iterates over the rows whose key in the index is at least low, and has v watch the whole
// table.
func (tb *table[R]) watchFrom(v *View, index string, low []byte) iter.Seq[*R] {
	v.watchMeta(tb.name)
	return func(yield func(*R) bool) {
		it, err := v.txn.LowerBound(tb.name, index, low)
		if err != nil {
			panic(fmt.Sprintf("list %s: %v", tb.name, err)) // constant schema
		}
		yieldRows(it, yield)
	}
}

// lastRow returns the row with the greatest key in an index, or nil if there is none.
func (tb *table[R]) lastRow(txn *memdb.Txn, index string) *R {
	obj, err := txn.Last(tb.name, index)
	if err != nil {
		panic(fmt.Sprintf("read the last of %s by %s: %v", tb.name, index, err)) // constant schema
	}
	if obj == nil {
		return nil
	}
	return obj.(*R)
}

// scanRows iterates over all rows of the table without watching anything.
func (tb *table[R]) scanRows(txn *memdb.Txn) iter.Seq[*R] { return tb.scanPrefix(txn, indexID, nil) }

// scanPrefix iterates over the rows whose key in the index begins with prefix, without watching anything.
func (tb *table[R]) scanPrefix(txn *memdb.Txn, index string, prefix []byte) iter.Seq[*R] {
	return func(yield func(*R) bool) {
		it, err := txn.Get(tb.name, index+"_prefix", prefix)
		if err != nil {
			panic(fmt.Sprintf("list %s: %v", tb.name, err)) // constant schema
		}
		yieldRows(it, yield)
	}
}

// yieldRows yields the rows of an iterator until yield returns false.
func yieldRows[R any](it memdb.ResultIterator, yield func(*R) bool) {
	for obj := it.Next(); obj != nil; obj = it.Next() {
		if !yield(obj.(*R)) {
			return
		}
	}
}
