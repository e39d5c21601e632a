package state

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/go-memdb"

	"skerry/fleet"
)

// indexID is the index of every table by its rows' key.
const indexID = "id"

// tableIndex is another order of a table's rows.
type tableIndex[R any] struct {
	name string
	key  func(*R) []byte
	// belongs says which rows are in it; nil: all. A reader that lists it wakes for them alone.
	belongs func(*R) bool
}

func (tb *table[R]) memdbSchema() *memdb.TableSchema {
	s := &memdb.TableSchema{Name: tb.name, Indexes: map[string]*memdb.IndexSchema{
		indexID: {Name: indexID, Unique: true, Indexer: tableIndex[R]{key: tb.key}},
	}}
	for _, i := range tb.indexes {
		s.Indexes[i.name] = &memdb.IndexSchema{Name: i.name, Unique: true, AllowMissing: i.belongs != nil, Indexer: i}
	}
	return s
}

// FromObject, FromArgs and PrefixFromArgs make the index an indexer of go-memdb, without
// reflection. Arguments are keys that were made by key and its friends, or begin one.
func (i tableIndex[R]) FromObject(obj any) (bool, []byte, error) {
	r, ok := obj.(*R)
	if !ok {
		return false, nil, fmt.Errorf("index a %T as a %T", obj, r)
	}
	if i.belongs != nil && !i.belongs(r) {
		return false, nil, nil // a key would keep the row where it was when it belonged
	}
	return true, i.key(r), nil
}

// FromArgs takes one key.
func (i tableIndex[R]) FromArgs(args ...any) ([]byte, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("index by %d arguments", len(args))
	}
	b, ok := args[0].([]byte)
	if !ok {
		return nil, fmt.Errorf("index by a %T", args[0])
	}
	return b, nil
}

// PrefixFromArgs takes the beginning of a key.
func (i tableIndex[R]) PrefixFromArgs(args ...any) ([]byte, error) { return i.FromArgs(args...) }

// key appends parts as an index key: each ends with a zero byte, so that no key
// is another one's prefix. Names with a zero byte in them are not valid.
func key(parts ...string) []byte {
	n := 0
	for _, p := range parts {
		n += len(p) + 1
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = append(append(b, p...), 0)
	}
	return b
}

// idKey is the key of a row by its id.
func idKey[T ~string](id T) []byte { return key(string(id)) }

// indexKey orders rows by an index or a number.
func indexKey[T ~uint64](index T) []byte { return binary.BigEndian.AppendUint64(nil, uint64(index)) }

func jobKeyOf(ns string, id fleet.JobID) []byte { return key(ns, string(id)) }

// onlyKey is the key of the row of a table that has one row at most.
var onlyKey = key("")

func onlyRow[R any](*R) []byte { return onlyKey }
