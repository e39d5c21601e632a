package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"reflect"
	"slices"
	"time"

	"skerry/fleet"
)

// digestBytes is how much of the hash a digest keeps.
const digestBytes = 16

// Digest is a fingerprint of everything in the view that the log decides, but events:
// two hubs that applied the same log have the same one, also where one of them started
// from a snapshot. It reads each field of each row, also those that nobody exports, and
// nothing of how rows are encoded: a field that a snapshot forgets is seen.
func (v *View) Digest() string {
	d := digester{sum: sha256.New(), jobs: map[*fleet.Job][]byte{}}
	for _, table := range digestedTables() {
		rows, err := v.txn.Get(table, indexID)
		if err != nil {
			panic(fmt.Sprintf("digest the table %s: %v", table, err)) // constant schema
		}
		d.hashText(table)
		for row := rows.Next(); row != nil; row = rows.Next() {
			d.hashValue(reflect.ValueOf(row))
		}
	}
	return hex.EncodeToString(d.sum.Sum(nil)[:digestBytes])
}

// digestedTables are the names of the tables that are in a digest, in their order.
func digestedTables() []string {
	var names []string
	for _, tb := range tables {
		if tb.isDigested() {
			names = append(names, tb.tableName())
		}
	}
	slices.Sort(names)
	return names
}

// DigestOf is the fingerprint of a command or a result: of what its encoding says.
func DigestOf(v any) string {
	sum := sha256.Sum256(encode(v))
	return hex.EncodeToString(sum[:digestBytes])
}

// digester hashes values by what they hold. Empty slices and maps are as good as none.
type digester struct {
	sum  hash.Hash
	jobs map[*fleet.Job][]byte // digests of those that many rows share
}

func (d *digester) hashNumber(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	_, _ = d.sum.Write(b[:]) // a hash takes everything
}

func (d *digester) hashText(s string) {
	d.hashNumber(uint64(len(s)))
	_, _ = d.sum.Write([]byte(s))
}

func (d *digester) hashValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		n := uint64(0)
		if v.Bool() {
			n = 1
		}
		d.hashNumber(n)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.hashNumber(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.hashNumber(v.Uint())
	case reflect.Float32, reflect.Float64:
		d.hashNumber(math.Float64bits(v.Float()))
	case reflect.String:
		d.hashText(v.String())
	case reflect.Slice, reflect.Array:
		d.hashListItems(v)
	case reflect.Map:
		d.hashMapEntries(v)
	case reflect.Struct:
		d.hashStructFields(v)
	case reflect.Pointer, reflect.Interface:
		d.hashPointer(v)
	default:
		panic(fmt.Sprintf("digest a %s: a row holds values alone", v.Type()))
	}
}

func (d *digester) hashListItems(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
		d.hashText(string(v.Bytes()))
		return
	}
	d.hashNumber(uint64(v.Len()))
	for i := range v.Len() {
		d.hashValue(v.Index(i))
	}
}

// hashMapEntries hashes a map in the order of its entries' own digests.
func (d *digester) hashMapEntries(v reflect.Value) {
	d.hashNumber(uint64(v.Len()))
	var sums [][]byte
	for each := v.MapRange(); each.Next(); {
		one := digester{sum: sha256.New(), jobs: d.jobs}
		one.hashValue(each.Key())
		one.hashValue(each.Value())
		sums = append(sums, one.sum.Sum(nil))
	}
	slices.SortFunc(sums, bytes.Compare)
	for _, sum := range sums {
		_, _ = d.sum.Write(sum)
	}
}

func (d *digester) hashStructFields(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		// Seconds and nanoseconds as package time keeps them; a time of the log has no
		// monotonic part. Its methods cannot be called on a field that is not exported.
		d.hashNumber(v.FieldByName("wall").Uint())
		d.hashNumber(uint64(v.FieldByName("ext").Int()))
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("digest") != "-" { // which is what a snapshot leaves out on purpose
			d.hashValue(v.Field(i))
		}
	}
}

func (d *digester) hashPointer(v reflect.Value) {
	if v.IsNil() {
		d.hashNumber(0)
		return
	}
	d.hashNumber(1)
	if v.Type() != reflect.TypeFor[*fleet.Job]() {
		d.hashValue(v.Elem())
		return
	}
	job := (*fleet.Job)(v.UnsafePointer())
	if d.jobs[job] == nil {
		one := digester{sum: sha256.New(), jobs: d.jobs}
		one.hashStructFields(v.Elem())
		d.jobs[job] = one.sum.Sum(nil)
	}
	_, _ = d.sum.Write(d.jobs[job])
}
