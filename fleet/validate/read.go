package validate

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"
)

// readIntoStruct reads an object into the struct that v points to, each key into the field of
// its name, and what stands there already where the key is absent or null. The fields
// in skip are the caller's to read. What no field is called like is a problem, see done.
func (o *jsonObject) readIntoStruct(v any, skip ...string) {
	o.readStructFields(reflect.ValueOf(v).Elem(), skip)
}

func (o *jsonObject) readStructFields(v reflect.Value, skip []string) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			o.readStructFields(v.Field(i), skip)
			continue
		}
		if f.Tag.Get("json") == "-" {
			continue // it comes from no file
		}
		o.addKnown(f.Name)
		if !slices.Contains(skip, f.Name) && o.hasNonNullValue(f.Name) {
			o.readFieldValue(f.Name, v.Field(i))
		}
	}
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[[]byte]()
)

// readFieldValue reads what stands under a key, which is not null.
func (o *jsonObject) readFieldValue(key string, v reflect.Value) {
	switch {
	case v.Type() == durationType:
		if d, ok := o.readDuration(key); ok {
			v.SetInt(int64(d))
		}
		return
	case v.Type() == bytesType:
		o.readBase64Bytes(key, v)
		return
	}
	switch v.Kind() {
	case reflect.String:
		if s, ok := valueAs[string](o, key, "a string"); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		if b, ok := valueAs[bool](o, key, "true or false"); ok {
			v.SetBool(b)
		}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		o.readInteger(key, v)
	case reflect.Pointer:
		o.readPointerField(key, v)
	case reflect.Struct:
		if sub, ok := o.childObject(key); ok {
			sub.readIntoStruct(v.Addr().Interface())
			sub.reportUnknownKeys()
		}
	case reflect.Slice:
		o.readSliceField(key, v)
	case reflect.Map:
		o.readMapField(key, v)
	default:
		panic(fmt.Sprintf("fleet: field %s of type %s cannot be read", key, v.Type()))
	}
}

// readPointerField reads into what v points to already, or into a new one with its defaults.
func (o *jsonObject) readPointerField(key string, v reflect.Value) {
	if v.IsNil() {
		v.Set(newPreset(v.Type().Elem()))
	}
	o.readFieldValue(key, v.Elem())
}

func newPreset(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	presetDefaults(p.Interface())
	return p
}

func (o *jsonObject) readSliceField(key string, v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.String {
		texts, ok := listOf[string](o, key, "a string")
		if !ok {
			return
		}
		list := make([]string, len(texts))
		for i, e := range texts {
			list[i] = e.value
		}
		v.Set(reflect.ValueOf(list))
		return
	}
	subs := o.childObjects(key)
	if len(subs) == 0 {
		return
	}
	list := reflect.MakeSlice(v.Type(), 0, len(subs))
	for _, sub := range subs {
		e := newPreset(v.Type().Elem())
		sub.readIntoStruct(e.Interface())
		sub.reportUnknownKeys()
		list = reflect.Append(list, e.Elem())
	}
	v.Set(list)
}

// readMapField reads a map: of text, of lists of text, of structs, or of anything.
func (o *jsonObject) readMapField(key string, v reflect.Value) {
	sub, ok := o.childObject(key)
	if !ok || len(sub.m) == 0 {
		return
	}
	if v.Type().Elem().Kind() == reflect.Interface {
		v.Set(reflect.ValueOf(plain(sub.m)))
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), len(sub.m))
	for _, k := range sortedKeys(sub.m) {
		if sub.m[k] == nil {
			o.problems.Add(sub.pathOfKey(k), "must be a string, not null")
			continue
		}
		e := newPreset(v.Type().Elem()).Elem()
		sub.readFieldValue(k, e)
		m.SetMapIndex(reflect.ValueOf(k), e)
	}
	v.Set(m)
}

// readInteger reads a whole number: an int has 32 bits, the others 64.
func (o *jsonObject) readInteger(key string, v reflect.Value) {
	n, ok := o.readWholeNumber(key, "a whole number")
	switch {
	case !ok:
	case v.Kind() == reflect.Int && (n < math.MinInt32 || n > math.MaxInt32):
		o.problems.Add(o.pathOfKey(key), "%d is out of range", n)
	case v.Kind() != reflect.Uint64:
		v.SetInt(n)
	case n < 0:
		o.problems.Add(o.pathOfKey(key), "may not be negative: %d", n)
	default:
		v.SetUint(uint64(n))
	}
}

// readBase64Bytes reads base64.
func (o *jsonObject) readBase64Bytes(key string, v reflect.Value) {
	s, ok := valueAs[string](o, key, "a string")
	if !ok {
		return
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		o.problems.Add(o.pathOfKey(key), "must be base64: %s", err)
		return
	}
	if len(b) > 0 {
		v.SetBytes(b)
	}
}
