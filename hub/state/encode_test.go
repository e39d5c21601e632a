package state_test

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"skerry/fleet"
	"skerry/hub/state"
)

// filled sets all fields of a struct, and all that they hold, to values that are not zero.
func filled(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(-math.MaxInt8)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(math.MaxUint8)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.5)
	case reflect.String:
		v.SetString("a text that is longer than twenty-three")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		filled(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, k := range []string{"zz", "b", "aaa", "", "a"} {
			elem := reflect.New(v.Type().Elem()).Elem()
			filled(elem)
			v.SetMapIndex(reflect.ValueOf(k).Convert(v.Type().Key()), elem)
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf(map[string]any{"b": []any{int64(-1), nil, false}, "a": 1.5}))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(start.In(time.FixedZone("elsewhere", 3600))))
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("cbor") != "-" {
				filled(v.Field(i))
			}
		}
	}
}

// TestEncodingIsCanonical has another encoder write what ours says: lengths,
// integers and the order of keys are the ones that the format prescribes, also of
// structs with more fields than a head of one byte counts.
func TestEncodingIsCanonical(t *testing.T) {
	canonical, err := cbor.EncOptions{Sort: cbor.SortLengthFirst}.EncMode()
	if err != nil {
		t.Fatal(err)
	}
	var alloc fleet.Alloc
	filled(reflect.ValueOf(&alloc).Elem())
	alloc.Job = nil
	commands := append(samples(), state.Plan{Result: fleet.PlanResult{NodeAllocation: byNode(alloc)}})
	for _, c := range samples() {
		full := reflect.New(reflect.TypeOf(c)).Elem()
		filled(full)
		commands = append(commands, full.Interface().(state.Command))
	}
	for _, c := range commands {
		ours := mustEncode(t, c)[2:]
		var said any
		if err := cbor.Unmarshal(ours, &said); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		theirs, err := canonical.Marshal(said)
		if err != nil {
			t.Fatalf("%T: %v", c, err)
		}
		if !bytes.Equal(ours, theirs) {
			t.Errorf("%T is\n%x, and canonically\n%x", c, ours, theirs)
		}
	}
}
