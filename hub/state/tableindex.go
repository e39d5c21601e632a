package state

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// indexID is the name of each table's primary index, by the row's key.
const indexID = "id"

// tableIndex is a further index of a table, with an order of its own.
type tableIndex[R any] struct {
	name string
	key  func(*R) []byte // the row's unique key in this index
	// belongs reports whether a row is in the index; nil: all rows are. A view that reads the index with
	// watchPrefix wakes only for these rows.
	belongs func(*R) bool
}

// memdbSchema returns the declaration of this table and its indexes for go-memdb.
func (tb *table[R]) memdbSchema() *memdb.TableSchema {
	s := &memdb.TableSchema{Name: tb.name, Indexes: map[string]*memdb.IndexSchema{
		indexID: {Name: indexID, Unique: true, Indexer: tableIndex[R]{key: tb.key}},
	}}
	for _, i := range tb.indexes {
		s.Indexes[i.name] = &memdb.IndexSchema{Name: i.name, Unique: true, AllowMissing: i.belongs != nil, Indexer: i}
	}
	return s
}

// FromObject, FromArgs and PrefixFromArgs implement go-memdb's indexer interfaces without reflection.
// Their arguments are keys that func key or its kin made, or the beginning of such a key.
func (i tableIndex[R]) FromObject(obj any) (bool, []byte, error) {
	r, ok := obj.(*R)
	if !ok {
		return false, nil, fmt.Errorf("index a %T as a %T", obj, r)
	}
	if i.belongs != nil && !i.belongs(r) {
		return false, nil, nil // with a key the row would stay in the index
	}
	return true, i.key(r), nil
}

// FromArgs returns its one argument, which must be a whole key.
func (i tableIndex[R]) FromArgs(args ...any) ([]byte, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("index by %d arguments", len(args))
	}
	switch b := args[0].(type) {
	case []byte:
		return b, nil
	case *[]byte:
		return *b, nil // of a lookup
	}
	return nil, fmt.Errorf("index by a %T", args[0])
}

// PrefixFromArgs returns its one argument, which must be the beginning of a key.
func (i tableIndex[R]) PrefixFromArgs(args ...any) ([]byte, error) { return i.FromArgs(args...) }

// lookup is a key to read rows by. One goroutine uses it for many reads: a key as an argument of its own costs go-memdb
// two allocations.
type lookup struct {
	key  []byte
	args []any // the address of key
}

func newLookup() *lookup {
	l := &lookup{}
	l.args = []any{&l.key}
	return l
}

// key encodes parts as an index key. Each part ends with a zero byte, so that no key is a prefix of
// another. A valid name contains no zero byte.
func key(parts ...string) []byte {
	n := 0
	for _, p := range parts {
		n += len(p) + 1
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = appendKeyPart(b, p)
	}
	return b
}

// appendKeyPart appends a part of an index key to b.
func appendKeyPart(b []byte, part string) []byte { return append(append(b, part...), 0) }

// idKey is the key of a row that is identified by one id.
func idKey[T ~string](id T) []byte { return key(string(id)) }

// indexKey encodes a number as 8 bytes whose order is the order of the numbers.
func indexKey[T ~uint64](index T) []byte { return binary.BigEndian.AppendUint64(nil, uint64(index)) }

// jobKeyOf is the key of a row that belongs to one job.
func jobKeyOf(ns string, id fleet.JobID) []byte { return key(ns, string(id)) }

// onlyKey is the key of the only row of a table that has at most one.
var onlyKey = key("")

// onlyRow is the key function of a table that has at most one row.
func onlyRow[R any](*R) []byte { return onlyKey }
