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
