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
		d.text(table)
		for row := rows.Next(); row != nil; row = rows.Next() {
			d.value(reflect.ValueOf(row))
		}
	}
	return hex.EncodeToString(d.sum.Sum(nil)[:digestBytes])
}

// digestedTables are all tables but those of events, in the order of their names.
func digestedTables() []string {
	var names []string
	for name := range schema().Tables {
		if name != tableEvents && name != tableWindow {
			names = append(names, name)
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

func (d *digester) number(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	_, _ = d.sum.Write(b[:]) // a hash takes everything
}

func (d *digester) text(s string) {
	d.number(uint64(len(s)))
	_, _ = d.sum.Write([]byte(s))
}

func (d *digester) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		n := uint64(0)
		if v.Bool() {
			n = 1
		}
		d.number(n)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.number(v.Uint())
	case reflect.Float32, reflect.Float64:
		d.number(math.Float64bits(v.Float()))
	case reflect.String:
		d.text(v.String())
	case reflect.Slice, reflect.Array:
		d.list(v)
	case reflect.Map:
		d.entries(v)
	case reflect.Struct:
		d.fields(v)
	case reflect.Pointer, reflect.Interface:
		d.pointer(v)
	default:
		panic(fmt.Sprintf("digest a %s: a row holds values alone", v.Type()))
	}
}

func (d *digester) list(v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
		d.text(string(v.Bytes()))
		return
	}
	d.number(uint64(v.Len()))
	for i := range v.Len() {
		d.value(v.Index(i))
	}
}

// entries hashes a map in the order of its entries' own digests.
func (d *digester) entries(v reflect.Value) {
	d.number(uint64(v.Len()))
	var sums [][]byte
	for each := v.MapRange(); each.Next(); {
		one := digester{sum: sha256.New(), jobs: d.jobs}
		one.value(each.Key())
		one.value(each.Value())
		sums = append(sums, one.sum.Sum(nil))
	}
	slices.SortFunc(sums, bytes.Compare)
	for _, sum := range sums {
		_, _ = d.sum.Write(sum)
	}
}

func (d *digester) fields(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		// Seconds and nanoseconds as package time keeps them; a time of the log has no
		// monotonic part. Its methods cannot be called on a field that is not exported.
		d.number(v.FieldByName("wall").Uint())
		d.number(uint64(v.FieldByName("ext").Int()))
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("digest") != "-" { // which is what a snapshot leaves out on purpose
			d.value(v.Field(i))
		}
	}
}

func (d *digester) pointer(v reflect.Value) {
	if v.IsNil() {
		d.number(0)
		return
	}
	d.number(1)
	if v.Type() != reflect.TypeFor[*fleet.Job]() {
		d.value(v.Elem())
		return
	}
	job := (*fleet.Job)(v.UnsafePointer())
	if d.jobs[job] == nil {
		one := digester{sum: sha256.New(), jobs: d.jobs}
		one.fields(v.Elem())
		d.jobs[job] = one.sum.Sum(nil)
	}
	_, _ = d.sum.Write(d.jobs[job])
}
