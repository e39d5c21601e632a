package codec

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// An encoder appends the encoding of values of one type. It is put together once,
// when the first value of its type comes: every entry and every row of a snapshot
// goes through here.
type encoder func(b []byte, v reflect.Value) []byte

var encoders sync.Map // reflect.Type -> encoder

var (
	timeType = reflect.TypeFor[time.Time]()
	textsMap = reflect.TypeFor[map[string]string]()
)

// AppendLean appends v to b as CBOR by field names, without zero values: definite lengths,
// shortest integers, 64-bit floats, keys in the order of their encoded bytes, times as
// RFC 3339 text in UTC. It panics where v has channels or functions in it.
func AppendLean(b []byte, v any) []byte {
	value := reflect.ValueOf(v)
	if !value.IsValid() {
		return append(b, null)
	}
	buf := buffers.Get().(*[]byte)
	*buf = encoderOf(value.Type())((*buf)[:0], value)
	b = append(b, *buf...)
	if cap(*buf) <= maxKeptBuffer {
		buffers.Put(buf)
	}
	return b
}

// buffers are for encodings of unknown length: what grows here is used again, and b grows once.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxKeptBuffer is the largest buffer that is used again: an entry of the log seldom has more.
const maxKeptBuffer = 1 << 20

// Values of one byte.
const (
	falseValue = 0xf4
	trueValue  = 0xf5
	null       = 0xf6
	float64Tag = 0xfb
)

func encoderOf(t reflect.Type) encoder {
	if e, ok := encoders.Load(t); ok {
		return e.(encoder)
	}
	e, _ := encoders.LoadOrStore(t, makeEncoder(t))
	return e.(encoder)
}

func makeEncoder(t reflect.Type) encoder {
	switch t.Kind() {
	case reflect.Pointer:
		return pointerEncoder(t)
	case reflect.Interface:
		return func(b []byte, v reflect.Value) []byte {
			if v.IsNil() {
				return append(b, null)
			}
			return encoderOf(v.Elem().Type())(b, v.Elem())
		}
	case reflect.Bool:
		return appendBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return appendInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(b []byte, v reflect.Value) []byte { return appendHead(b, majorUint, v.Uint()) }
	case reflect.Float32, reflect.Float64:
		return func(b []byte, v reflect.Value) []byte {
			return binary.BigEndian.AppendUint64(append(b, float64Tag), math.Float64bits(v.Float()))
		}
	case reflect.String:
		return func(b []byte, v reflect.Value) []byte { return appendText(b, v.String()) }
	case reflect.Slice, reflect.Array:
		return listEncoder(t)
	case reflect.Map:
		return mapEncoder(t)
	case reflect.Struct:
		if t == timeType {
			return appendTime
		}
		return structEncoder(t)
	}
	panic(fmt.Sprintf("encode a %s", t))
}

// lazyEncoder is the encoder of a type that may refer to itself.
func lazyEncoder(t reflect.Type) func() encoder {
	return sync.OnceValue(func() encoder { return encoderOf(t) })
}

func pointerEncoder(t reflect.Type) encoder {
	elem := lazyEncoder(t.Elem())
	return func(b []byte, v reflect.Value) []byte {
		if v.IsNil() {
			return append(b, null)
		}
		return elem()(b, v.Elem())
	}
}

func appendBool(b []byte, v reflect.Value) []byte {
	if v.Bool() {
		return append(b, trueValue)
	}
	return append(b, falseValue)
}

func appendInt(b []byte, v reflect.Value) []byte {
	n := v.Int()
	if n < 0 {
		return appendHead(b, majorInt, uint64(^n))
	}
	return appendHead(b, majorUint, uint64(n))
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

func appendTime(b []byte, v reflect.Value) []byte {
	var text [len(time.RFC3339Nano)]byte
	s := v.Interface().(time.Time).UTC().AppendFormat(text[:0], time.RFC3339Nano)
	return append(appendHead(b, majorText, uint64(len(s))), s...)
}

func listEncoder(t reflect.Type) encoder {
	if t.Elem().Kind() == reflect.Uint8 {
		return func(b []byte, v reflect.Value) []byte {
			return append(appendHead(b, majorBytes, uint64(v.Len())), v.Bytes()...)
		}
	}
	elem := lazyEncoder(t.Elem())
	return func(b []byte, v reflect.Value) []byte {
		b = appendHead(b, majorArray, uint64(v.Len()))
		for i := range v.Len() {
			b = elem()(b, v.Index(i))
		}
		return b
	}
}

// mapEncoder writes maps with keys that are strings, and all of their values, also
// zero ones: a key that is there means something.
func mapEncoder(t reflect.Type) encoder {
	if t == textsMap {
		return appendTexts
	}
	type pair struct {
		key   string
		value reflect.Value
	}
	elem := lazyEncoder(t.Elem())
	return func(b []byte, v reflect.Value) []byte {
		pairs := make([]pair, 0, v.Len())
		for it := v.MapRange(); it.Next(); {
			pairs = append(pairs, pair{it.Key().String(), it.Value()})
		}
		slices.SortFunc(pairs, func(x, y pair) int { return compareKeys(x.key, y.key) })
		b = appendHead(b, majorMap, uint64(len(pairs)))
		for _, p := range pairs {
			b = elem()(appendText(b, p.key), p.value)
		}
		return b
	}
}

func appendTexts(b []byte, v reflect.Value) []byte {
	texts := v.Interface().(map[string]string)
	keys := make([]string, 0, len(texts))
	for k := range texts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareKeys)
	b = appendHead(b, majorMap, uint64(len(keys)))
	for _, k := range keys {
		b = appendText(appendText(b, k), texts[k])
	}
	return b
}

func structEncoder(t reflect.Type) encoder {
	fields := fieldsOf(t)
	return func(b []byte, v reflect.Value) []byte {
		n, head := 0, len(b)
		b = append(b, majorMap<<5)
		for i := range fields {
			f := &fields[i]
			fv := v.Field(f.index[0])
			for _, inner := range f.index[1:] {
				fv = fv.Field(inner)
			}
			if !f.absent(fv) {
				b = f.encode(append(b, f.key...), fv)
				n++
			}
		}
		if n < 24 {
			b[head] |= byte(n)
			return b
		}
		return slices.Replace(b, head, head+1, appendHead(nil, majorMap, uint64(n))...)
	}
}

// emptyCheck returns what reports whether a field of a type is left out: it is zero,
// or an empty list or map.
func emptyCheck(t reflect.Type) func(reflect.Value) bool {
	switch t.Kind() {
	case reflect.Map, reflect.Slice, reflect.String:
		return func(v reflect.Value) bool { return v.Len() == 0 }
	case reflect.Struct:
		if t == timeType {
			return func(v reflect.Value) bool { return v.IsZero() || v.Interface().(time.Time).IsZero() }
		}
	}
	return reflect.Value.IsZero
}

type structField struct {
	name   string
	index  []int
	key    []byte // the name, encoded
	encode encoder
	absent func(reflect.Value) bool
}

// fieldsOf lists the encoded fields of a struct, in the order of their keys. The
// name is the cbor tag's, else the json tag's, else Go's, as the decoder has it; the
// fields of an embedded struct stand among those of the outer one.
func fieldsOf(t reflect.Type) []structField {
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
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
			continue
		case name == "":
			name = f.Name
		}
		fields = append(fields, structField{name, f.Index, appendText(nil, name), encoderOf(f.Type), emptyCheck(f.Type)})
	}
	slices.SortFunc(fields, func(x, y structField) int { return compareKeys(x.name, y.name) })
	return fields
}

// compareKeys orders text keys by their encoded bytes: shorter ones first.
func compareKeys(x, y string) int {
	if c := cmp.Compare(len(x), len(y)); c != 0 {
		return c
	}
	return strings.Compare(x, y)
}
