package syntax_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
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
		`{"a": "a", "b": ["a", "b"]}`:      "",
		`{"": 1, "": 2}`:                   `""`,
		"{\"a\": 1, \"a\" \n : 2}":         "a",
		"{\"\xfe\": 1, \"\xff\": 2}":       "\ufffd",
		manyKeys(100, "k7"):                "k7",
		manyKeys(100, "other"):             "",
		``:                                 "",
		`1e999`:                            "",
	} {
		if got := syntax.RepeatedKey([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// manyKeys returns an object with the keys k0, k1 … and one more.
func manyKeys(n int, last string) string {
	var text strings.Builder
	text.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&text, `"k%d": 0, `, i)
	}
	fmt.Fprintf(&text, `%q: 0}`, last)
	return text.String()
}

// FuzzRepeatedKey compares whether a key is repeated with what the tokens of encoding/json say.
func FuzzRepeatedKey(f *testing.F) {
	for _, text := range []string{`{"a":[{"b":1,"b":2}]}`, `{"a":"b","b":{"a":1}}`, `{"":0,"":0}`, `["a",{"\u0061":1,"a":2}]`, `{"a\"":1,"a\"":1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		found := syntax.RepeatedKey(text) // must not panic, whatever the text is
		if !json.Valid(text) || syntax.JSONDepth(text) > 100 {
			return
		}
		if want := repeatsKey(json.NewDecoder(bytes.NewReader(text))); (found != "") != want {
			t.Errorf("%s: found %q, an object has a key twice: %v", text, found, want)
		}
	})
}

// repeatsKey reports whether an object in the next value of a decoder has a key twice.
func repeatsKey(dec *json.Decoder) (repeats bool) {
	dec.UseNumber()
	opening, _ := dec.Token()
	if opening != json.Delim('{') && opening != json.Delim('[') {
		return false
	}
	for seen := map[any]bool{}; dec.More(); {
		if opening == json.Delim('{') {
			key, _ := dec.Token()
			repeats = repeats || seen[key]
			seen[key] = true
		}
		repeats = repeatsKey(dec) || repeats
	}
	_, _ = dec.Token()
	return repeats
}

// BenchmarkRepeatedKey looks for repeated keys in a job of 20 groups.
func BenchmarkRepeatedKey(b *testing.B) {
	job := []byte(`{"Groups": [` + strings.TrimSuffix(strings.Repeat(manyKeys(40, "more")+", ", 20), ", ") + `]}`)
	b.SetBytes(int64(len(job)))
	for b.Loop() {
		if syntax.RepeatedKey(job) != "" {
			b.Fatal("a key is found")
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
