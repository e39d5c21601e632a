package fleet

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// presetter is a noun with defaults other than zero: they are put in before it is read,
// so that an explicit 0 stays one.
type presetter interface{ preset() }

// fill reads an object into the struct that v points to, each key into the field of
// its name, and what stands there already where the key is absent or null. The fields
// in skip are the caller's to read. What no field is called like is a problem, see done.
func (o *object) fill(v any, skip ...string) {
	o.fields(reflect.ValueOf(v).Elem(), skip)
}

func (o *object) fields(v reflect.Value, skip []string) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			o.fields(v.Field(i), skip)
			continue
		}
		if f.Tag.Get("json") == "-" {
			continue // it comes from no file
		}
		o.known = append(o.known, f.Name)
		if !slices.Contains(skip, f.Name) && o.has(f.Name) {
			o.field(f.Name, v.Field(i))
		}
	}
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[[]byte]()
)

// field reads what stands under a key, which is not null.
func (o *object) field(key string, v reflect.Value) {
	switch {
	case v.Type() == durationType:
		var d time.Duration
		if o.duration(key, &d) {
			v.SetInt(int64(d))
		}
		return
	case v.Type() == bytesType:
		o.bytes(key, v)
		return
	}
	switch v.Kind() {
	case reflect.String:
		var s string
		if o.text(key, &s) {
			v.SetString(s)
		}
	case reflect.Bool:
		var b bool
		if o.boolean(key, &b) {
			v.SetBool(b)
		}
	case reflect.Int:
		var n int
		if o.integer(key, &n) {
			v.SetInt(int64(n))
		}
	case reflect.Int64, reflect.Uint64:
		o.counter(key, v)
	case reflect.Pointer:
		o.pointer(key, v)
	case reflect.Struct:
		if sub, ok := o.object(key); ok {
			sub.fill(v.Addr().Interface())
			sub.done()
		}
	case reflect.Slice:
		o.slice(key, v)
	case reflect.Map:
		o.mapping(key, v)
	default:
		panic(fmt.Sprintf("fleet: field %s of type %s cannot be read", key, v.Type()))
	}
}

// pointer reads into what v points to already, or into a new one with its defaults.
func (o *object) pointer(key string, v reflect.Value) {
	if v.IsNil() {
		v.Set(newPreset(v.Type().Elem()))
	}
	o.field(key, v.Elem())
}

func newPreset(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if d, ok := p.Interface().(presetter); ok {
		d.preset()
	}
	return p
}

func (o *object) slice(key string, v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.String {
		var list []string
		if o.texts(key, &list) {
			v.Set(reflect.ValueOf(list))
		}
		return
	}
	subs := o.objects(key)
	if len(subs) == 0 {
		return
	}
	list := reflect.MakeSlice(v.Type(), 0, len(subs))
	for _, sub := range subs {
		e := newPreset(v.Type().Elem())
		sub.fill(e.Interface())
		sub.done()
		list = reflect.Append(list, e.Elem())
	}
	v.Set(list)
}

// mapping reads a map: of text, of lists of text, of structs, or of anything.
func (o *object) mapping(key string, v reflect.Value) {
	sub, ok := o.object(key)
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
			o.problems.add(sub.at(k), "must be text, not null")
			continue
		}
		e := newPreset(v.Type().Elem()).Elem()
		sub.field(k, e)
		m.SetMapIndex(reflect.ValueOf(k), e)
	}
	v.Set(m)
}

// counter reads a number of 64 bits.
func (o *object) counter(key string, v reflect.Value) {
	n, ok := o.whole(key, "a whole number")
	switch {
	case !ok:
	case v.Kind() == reflect.Int64:
		v.SetInt(n)
	case n < 0:
		o.problems.add(o.at(key), "may not be negative: %d", n)
	default:
		v.SetUint(uint64(n))
	}
}

// bytes reads base64.
func (o *object) bytes(key string, v reflect.Value) {
	var s string
	if !o.text(key, &s) {
		return
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		o.problems.add(o.at(key), "must be base64: %s", err)
		return
	}
	if len(b) > 0 {
		v.SetBytes(b)
	}
}
