package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// What lies in the log and in snapshots is CBOR by field names: the names are
// those of the HTTP API, which never change. Zero values are left out, so that a
// field added later changes no byte of what was written before, and no hash. The
// encoding is deterministic: definite lengths, shortest integers, 64-bit floats,
// keys in the order of their encoded bytes, times as RFC 3339 text in UTC.

// CBOR's major types.
const (
	majorUint  = 0
	majorInt   = 1
	majorBytes = 2
	majorText  = 3
	majorArray = 4
	majorMap   = 5
	majorTag   = 6
	majorOther = 7
)

var timeType = reflect.TypeFor[time.Time]()

// appendValue appends v's encoding to b. It panics on kinds that no noun has
// (channels, functions): that is a mistake in this package, not in its input.
func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Invalid:
		return append(b, 0xf6)
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return append(b, 0xf6)
		}
		return appendValue(b, v.Elem())
	case reflect.Bool:
		if v.Bool() {
			return append(b, 0xf5)
		}
		return append(b, 0xf4)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n := v.Int(); n < 0 {
			return appendHead(b, majorInt, uint64(^n))
		}
		return appendHead(b, majorUint, uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return appendHead(b, majorUint, v.Uint())
	case reflect.Float32, reflect.Float64:
		return binary.BigEndian.AppendUint64(append(b, 0xfb), math.Float64bits(v.Float()))
	case reflect.String:
		return appendText(b, v.String())
	case reflect.Slice, reflect.Array:
		return appendList(b, v)
	case reflect.Map:
		return appendMap(b, v)
	case reflect.Struct:
		return appendStruct(b, v)
	}
	panic(fmt.Sprintf("encode a %s", v.Type()))
}

func appendHead(b []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

func appendText(b []byte, s string) []byte {
	return append(appendHead(b, majorText, uint64(len(s))), s...)
}

func appendList(b []byte, v reflect.Value) []byte {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return append(appendHead(b, majorBytes, uint64(v.Len())), v.Bytes()...)
	}
	b = appendHead(b, majorArray, uint64(v.Len()))
	for i := range v.Len() {
		b = appendValue(b, v.Index(i))
	}
	return b
}

// appendMap writes a map with keys that are strings, and all of its values, also
// zero ones: a key that is there means something.
func appendMap(b []byte, v reflect.Value) []byte {
	type pair struct {
		key   string
		value reflect.Value
	}
	pairs := make([]pair, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		pairs = append(pairs, pair{it.Key().String(), it.Value()})
	}
	slices.SortFunc(pairs, func(x, y pair) int { return compareKeys(x.key, y.key) })
	b = appendHead(b, majorMap, uint64(len(pairs)))
	for _, p := range pairs {
		b = appendValue(appendText(b, p.key), p.value)
	}
	return b
}

func appendStruct(b []byte, v reflect.Value) []byte {
	if v.Type() == timeType {
		t := v.Interface().(time.Time)
		return appendText(b, t.UTC().Format(time.RFC3339Nano))
	}
	fields := fieldsOf(v.Type())
	n := 0
	for _, f := range fields {
		if !absent(v.FieldByIndex(f.index)) {
			n++
		}
	}
	b = appendHead(b, majorMap, uint64(n))
	for _, f := range fields {
		if fv := v.FieldByIndex(f.index); !absent(fv) {
			b = appendValue(appendText(b, f.name), fv)
		}
	}
	return b
}

// absent reports whether a field is left out: it is zero, or an empty list or map.
func absent(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	case reflect.Struct:
		if v.Type() == timeType {
			return v.Interface().(time.Time).IsZero()
		}
	}
	return v.IsZero()
}

type structField struct {
	name  string
	index []int
}

var structFields sync.Map // reflect.Type -> []structField

// fieldsOf lists the encoded fields of a struct, in the order of their keys. The
// name is the cbor tag's, else the json tag's, else Go's, as the decoder has it; the
// fields of an embedded struct stand among those of the outer one.
func fieldsOf(t reflect.Type) []structField {
	if f, ok := structFields.Load(t); ok {
		return f.([]structField)
	}
	var fields []structField
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("cbor")
		if !tagged {
			tag = f.Tag.Get("json")
		}
		name, _, _ := strings.Cut(tag, ",")
		switch {
		case !f.IsExported() || name == "-":
			continue
		case f.Anonymous && name == "":
			for _, inner := range fieldsOf(f.Type) {
				fields = append(fields, structField{inner.name, append([]int{i}, inner.index...)})
			}
			continue
		case name == "":
			name = f.Name
		}
		fields = append(fields, structField{name, f.Index})
	}
	slices.SortFunc(fields, func(x, y structField) int { return compareKeys(x.name, y.name) })
	structFields.Store(t, fields)
	return fields
}

// compareKeys orders text keys by their encoded bytes: shorter ones first.
func compareKeys(x, y string) int {
	if c := cmp.Compare(len(x), len(y)); c != 0 {
		return c
	}
	return strings.Compare(x, y)
}

// maxItems bounds maps and list elements of one record: what makes decoding take
// more memory than the bytes it reads. An entry of 1,000 placements has 20,000.
const maxItems = 1 << 17

const maxNesting = 64

var decoding = mustDecMode()

func mustDecMode() cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		IntDec:            cbor.IntDecConvertSignedOrFail,
		DefaultMapType:    reflect.TypeFor[map[string]any](),
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		MaxNestedLevels:   maxNesting,
		MaxArrayElements:  maxItems,
		MaxMapPairs:       maxItems,
	}.DecMode()
	if err != nil {
		panic(fmt.Sprintf("set up the decoder: %v", err)) // constant options
	}
	return m
}

// decode reads one value into v, which must be empty. It takes no more memory
// than a small multiple of maxItems structs, whatever b claims.
func decode(b []byte, v any) error {
	if err := bound(b); err != nil {
		return err
	}
	return decoding.Unmarshal(b, v)
}

func encode(v any) []byte { return appendValue(nil, reflect.ValueOf(v)) }

// bound walks b without decoding it and refuses more than maxItems. What is
// malformed is left for the decoder to name.
func bound(b []byte) error {
	items := uint64(0)
	r := bytes.NewReader(b)
	for r.Len() > 0 {
		major, n, ok := readHead(r)
		if !ok {
			return nil
		}
		switch major {
		case majorBytes, majorText:
			if n > uint64(r.Len()) {
				return nil
			}
			if _, err := r.Seek(int64(n), 1); err != nil {
				return nil
			}
		case majorArray, majorMap:
			if items += 1 + n; n > maxItems || items > maxItems {
				return fmt.Errorf("more than %d items", maxItems)
			}
		}
	}
	return nil
}

func readHead(r *bytes.Reader) (major byte, n uint64, ok bool) {
	first, err := r.ReadByte()
	if err != nil {
		return 0, 0, false
	}
	major, n = first>>5, uint64(first&0x1f)
	if n < 24 {
		return major, n, true
	}
	if n > 27 {
		return 0, 0, false // indefinite or reserved
	}
	size := 1 << (n - 24)
	n = 0
	for range size {
		c, err := r.ReadByte()
		if err != nil {
			return 0, 0, false
		}
		n = n<<8 | uint64(c)
	}
	return major, n, true
}
