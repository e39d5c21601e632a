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

// Digest returns a hash of everything in the view that the log decides, without events. Hubs that applied
// the same entries have the same digest, even if one started from a snapshot. It reads every field of
// every row directly, not its encoding, so that it notices a field that a snapshot forgets.
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

// digestedTables returns the names of the tables that are part of a digest, sorted.
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

// DigestOf returns a hash of the encoding of a command or a result.
func DigestOf(v any) string {
	sum := sha256.Sum256(encode(v))
	return hex.EncodeToString(sum[:digestBytes])
}

// digester hashes values by their contents. An empty slice or map hashes like a nil one.
type digester struct {
	sum  hash.Hash
	jobs map[*fleet.Job][]byte // digests of job bodies, which many rows share
}

// hashNumber adds a number to the hash.
func (d *digester) hashNumber(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	_, _ = d.sum.Write(b[:]) // a hash takes everything
}

// hashText adds a string and its length to the hash.
func (d *digester) hashText(s string) {
	d.hashNumber(uint64(len(s)))
	_, _ = d.sum.Write([]byte(s))
}

// hashValue adds a value of any kind to the hash, with all that it points to. It panics for channels and
// functions.
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

// hashListItems adds a slice or an array to the hash.
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

// hashMapEntries adds a map to the hash, its entries sorted by their own hashes.
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

// hashStructFields adds the fields of a struct to the hash, except those with the tag digest:"-".
func (d *digester) hashStructFields(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		// Seconds and nanoseconds as package time keeps them; a time of the log has no
		// monotonic part. Its methods cannot be called on a field that is not exported.
		d.hashNumber(v.FieldByName("wall").Uint())
		d.hashNumber(uint64(v.FieldByName("ext").Int()))
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("digest") != "-" { // a snapshot leaves out a field with this tag on purpose
			d.hashValue(v.Field(i))
		}
	}
}

// hashPointer adds the value that a pointer or an interface points to. It hashes each shared job only
// once.
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
