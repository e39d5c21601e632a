package state

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/hashicorp/go-memdb"
)

// table is one table of the state. Its declaration is the only place that says how its rows
// are called, ordered, saved and described; tables lists it. Rows never change once they
// are committed. The functions of a declaration use no other table.
type table[R any] struct {
	name    string
	key     func(*R) []byte // as func key makes them; rows are ordered by it
	indexes []tableIndex[R]
	records []record[R] // of a snapshot; none: rows follow from those of other tables
	// describe writes a row as text; nil: its JSON.
	describe func(d *describer, table string, r *R)
	// announced tables have a row in meta from the beginning, so that a reader of the whole
	// table wakes for this table alone.
	announced bool
	// undigested tables are neither in the digest nor in the description.
	undigested bool

	slot int // in tables, and in tx.changed
}

// anyTable is a table of whatever rows.
type anyTable interface {
	tableName() string
	isAnnounced() bool
	isDigested() bool
	setSlot(slot int)
	memdbSchema() *memdb.TableSchema
	recordNumbers() []byte
	loadRecord(in *loader, number byte, body []byte) (known bool, err error)
	persistRows(txn *memdb.Txn, out *recordWriter)
	describeRows(txn *memdb.Txn, d *describer)
	writeChanges(t *tx, out *memdb.Txn)
}

func (tb *table[R]) tableName() string { return tb.name }
func (tb *table[R]) isAnnounced() bool { return tb.announced }
func (tb *table[R]) isDigested() bool  { return !tb.undigested }
func (tb *table[R]) setSlot(slot int)  { tb.slot = slot }

// currentRow returns the row as the entry has left it so far, or nil. It is shared
// unless this entry put it.
func (tb *table[R]) currentRow(t *tx, key []byte) *R {
	if r, ok := tb.changedRows(t)[string(key)]; ok {
		return r
	}
	return tb.rowBeforeEntry(t, key)
}

// rowBeforeEntry returns a row as it was before the entry, or nil.
func (tb *table[R]) rowBeforeEntry(t *tx, key []byte) *R {
	obj, err := t.base.First(tb.name, indexID, key)
	if err != nil {
		panic(fmt.Sprintf("read %s: %v", tb.name, err)) // constant schema
	}
	if obj == nil {
		return nil
	}
	return obj.(*R)
}

// ownRow is like currentRow, for a row that is only changed in place: the entry's own
// copy of it (made by clone on the first call), or nil.
func (tb *table[R]) ownRow(t *tx, key []byte, clone func(*R) *R) *R {
	if r, ok := tb.changedRows(t)[string(key)]; ok {
		return r
	}
	r := tb.rowBeforeEntry(t, key)
	if r != nil {
		r = clone(r)
		tb.putRow(t, r)
	}
	return r
}

func (tb *table[R]) putRow(t *tx, r *R) { tb.setRow(t, tb.key(r), r) }

func (tb *table[R]) removeRow(t *tx, key []byte) { tb.setRow(t, key, nil) }

func (tb *table[R]) setRow(t *tx, key []byte, r *R) {
	changed := tb.changedRows(t)
	if changed == nil {
		changed = map[string]*R{}
		t.changed[tb.slot] = changed
	}
	changed[string(key)] = r
}

// changedRows are the rows that the entry has changed so far, by key; nil: removed.
func (tb *table[R]) changedRows(t *tx) map[string]*R {
	changed, _ := t.changed[tb.slot].(map[string]*R)
	return changed
}

// changesInOrder lists changedRows in the order of their keys.
func (tb *table[R]) changesInOrder(t *tx) iter.Seq2[string, *R] {
	return inKeyOrder(tb.changedRows(t))
}

// inKeyOrder lists a map in the order of its keys.
func inKeyOrder[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// replaceRows puts the rows that the table has in old in place of its own.
func (tb *table[R]) replaceRows(t *tx, old *View) {
	for r := range tb.scanRows(t.base) {
		tb.removeRow(t, tb.key(r))
	}
	for r := range tb.scanRows(old.txn) {
		tb.putRow(t, r)
	}
}

// markChanged notes that the table changed for whoever asks TableIndex.
func (tb *table[R]) markChanged(t *tx) { t.markMeta(tb.name) }

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

// watchRow reads a row and watches it.
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

// watchRows lists the rows, and watches the table as a whole.
func (tb *table[R]) watchRows(v *View) iter.Seq[*R] { return tb.watchTable(v, indexID, nil) }

// watchTable lists the rows whose keys of index begin with prefix, and watches the
// table as a whole.
func (tb *table[R]) watchTable(v *View, index string, prefix []byte) iter.Seq[*R] {
	v.watchMeta(tb.name)
	return tb.scanPrefix(v.txn, index, prefix)
}

// watchPrefix is like watchTable, and watches only the rows that begin with prefix.
func (tb *table[R]) watchPrefix(v *View, index string, prefix []byte) iter.Seq[*R] {
	ch, _, err := v.txn.FirstWatch(tb.name, index+"_prefix", prefix)
	if err != nil {
		panic(fmt.Sprintf("watch %s: %v", tb.name, err)) // constant schema
	}
	v.watchChannel(ch)
	return tb.scanPrefix(v.txn, index, prefix)
}

// watchFrom lists the rows whose keys of index are at least low, and watches the table
// as a whole.
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

// scanRows lists the rows, and watches nothing.
func (tb *table[R]) scanRows(txn *memdb.Txn) iter.Seq[*R] { return tb.scanPrefix(txn, indexID, nil) }

// scanPrefix lists the rows whose keys of index begin with prefix, and watches nothing.
func (tb *table[R]) scanPrefix(txn *memdb.Txn, index string, prefix []byte) iter.Seq[*R] {
	return func(yield func(*R) bool) {
		it, err := txn.Get(tb.name, index+"_prefix", prefix)
		if err != nil {
			panic(fmt.Sprintf("list %s: %v", tb.name, err)) // constant schema
		}
		yieldRows(it, yield)
	}
}

func yieldRows[R any](it memdb.ResultIterator, yield func(*R) bool) {
	for obj := it.Next(); obj != nil; obj = it.Next() {
		if !yield(obj.(*R)) {
			return
		}
	}
}
