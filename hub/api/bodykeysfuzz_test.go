package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"skerry/hub/api"
)

// body has a field of each kind that the types of bodies have.
type body struct {
	body2
	Name   string
	Bytes  []byte
	List   []struct{ Deep *struct{ Kelvin int } }
	Keyed  map[string]struct{ A, B int }
	Plain  any
	Raw    json.RawMessage
	hidden int
	Left   int `json:"-"`
}

var _ = body{}.hidden // encoding/json does not know it

type body2 struct {
	Name  struct{ Hidden int } // that of body goes before it
	Other []struct{ Last bool }
}

// unknownTo asks encoding/json for the first key of a body that a type has no field for.
func unknownTo(b []byte, v any) (key string, isUnknown bool) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		return "", false
	}
	quoted, isUnknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	key, err = strconv.Unquote(quoted)
	return key, isUnknown && err == nil
}

// saidOf lists all values of a key anywhere in a decoded JSON value.
func saidOf(key string, v any) (values []any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if k == key {
				values = append(values, e)
			}
			values = append(values, saidOf(key, e)...)
		}
	case []any:
		for _, e := range v {
			values = append(values, saidOf(key, e)...)
		}
	}
	return values
}

// FuzzUnknownKeys compares the refused keys with those that encoding/json has no field for.
func FuzzUnknownKeys(f *testing.F) {
	for _, seed := range []string{
		`{"name": "a", "NAME": "b", "List": [{"Deep": {"Kelvin": 1, "\u212aelvin": 2}}, {}], "Keyed": {"x": {"a": 1}}, "Other": [{"last": true}]}`,
		`{"hidden": 1}`, `{"Left": 1}`, `{"List": [{"Deep": {"Wrong": 1}, "Deep": {}}]}`, `{"Keyed": {"x": {"C": -0.0e7}}}`, `{"Plain": {"Any": 1}, "Raw": [1]}`,
		`{"Region": "eu", "region": "eu", "X": [ ], "Y": { }, "Z": null, "name": null, "List": null, "Bytes": "eA=="}`, `null`, `{"Other": [{"Gone": [[]]}, {}, {"Far": 1}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var into body
		if json.Unmarshal(b, &into) != nil {
			return
		}
		err := api.RefuseUnknownKeys(b, &into)
		if err != nil && len(err.Error()) > 8<<10 {
			t.Fatalf("a refusal of %d bytes", len(err.Error()))
		}
		key, isUnknown := unknownTo(b, &body{})
		if err != nil && !isUnknown {
			t.Fatalf("%s: %v, and encoding/json knows all of it", b, err)
		}
		if err != nil || !isUnknown || api.IsIgnoredKey(key) {
			return
		}
		var tree any
		if err := json.Unmarshal(b, &tree); err != nil {
			t.Fatal(err)
		}
		for _, v := range saidOf(key, tree) {
			if isEmptyJSON(v) {
				return
			}
		}
		t.Fatalf("%s: nothing is refused, and encoding/json passes over %q", b, key)
	})
}

// TestUnknownKeysAreBounded refuses bodies of the largest size, with little memory and short errors; a quarter of that
// with -short.
func TestUnknownKeysAreBounded(t *testing.T) {
	largest := api.MaxBody
	if testing.Short() { // the race detector makes it ten times as slow
		largest /= 4
	}
	distinct := func() []byte {
		var b bytes.Buffer
		for i := range largest / 14 {
			fmt.Fprintf(&b, `,"k%d":1`, i)
		}
		return append(append([]byte("{"), b.Bytes()[1:]...), '}')
	}
	for name, b := range map[string][]byte{
		"many keys":    distinct(),
		"one long key": []byte(`{"` + strings.Repeat("k", largest-10) + `":1}`),
		"many objects": []byte(`{"X":1,"List":[` + strings.Repeat(`{},`, largest/3-10) + `{}]}`),
		"deep":         []byte(`{"X":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}`),
		"a large key":  []byte(`{"X":[` + strings.Repeat("[],", largest/3-10) + `[]]}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := api.RefuseUnknownKeys(b, &body{})
		runtime.ReadMemStats(&after)
		if err == nil || len(err.Error()) > 8<<10 {
			t.Errorf("%s: a refusal of %d bytes", name, len(fmt.Sprint(err)))
		}
		if made := (after.TotalAlloc - before.TotalAlloc) >> 20; made > 160 {
			t.Errorf("%s: %d MiB made for a body of %d MiB", name, made, len(b)>>20)
		}
	}
}
