package syntax_test

import (
	"encoding/json"
	"testing"

	"skerry/fleet/syntax"
)

// FuzzJSONDepth compares the depth with what encoding/json decodes.
func FuzzJSONDepth(f *testing.F) {
	for _, text := range []string{`{}`, `[[1]]`, `{"a":"[[[["}`, `"\"[["`, `[`, `]]]]`} {
		f.Add([]byte(text), 2)
	}
	f.Fuzz(func(t *testing.T, text []byte, most int) {
		var v any
		if json.Unmarshal(text, &v) != nil || most < 0 || most > 100 {
			return
		}
		if within := syntax.JSONDepth(text) <= most; within != (depthOf(v) <= most) {
			t.Errorf("%s is %d deep, within %d: %v", text, depthOf(v), most, within)
		}
	})
}

// A key that one object has twice is found, at any depth; the same key of two objects is none.
func TestRepeatedKey(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1, "b": {"a": 1}, "c": [{"a": 1}, {"a": 2}]}`: "",
		`{"a": 1, "a": 1}`: "a",
		`{"a": [1, {"b": {"c": 1, "d": 2, "c": {}}}]}`: "a[1].b.c",
		`{"a": 1, "A": 1}`:                 "",
		`{"a": 1, "\u0061": 1}`:            "a",
		`[[{"x": "{", "y": "}", "x": 0}]]`: "[0][0].x",
		`{"a": 1, "a"`:                     "a",
		`{"a": `:                           "",
		``:                                 "",
		`1e999`:                            "",
	} {
		if got := syntax.RepeatedKey([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func depthOf(v any) int {
	deepest := -1
	switch v := v.(type) {
	case []any:
		deepest = 0
		for _, item := range v {
			deepest = max(deepest, depthOf(item))
		}
	case map[string]any:
		deepest = 0
		for _, item := range v {
			deepest = max(deepest, depthOf(item))
		}
	}
	return deepest + 1
}
