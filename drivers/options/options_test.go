package options_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"skerry/drivers/options"
	"skerry/fleet"
)

func TestRead(t *testing.T) {
	r := options.Read(map[string]any{
		"command": "/bin/true", "args": []any{"--port", 8080, true}, "quiet": "true", "size": json.Number("7"),
		"sysctl": []any{map[string]any{"a": 1}, map[string]any{"b": "x"}},
	})
	if s := r.RequiredText("command"); s != "/bin/true" {
		t.Errorf("command: %q", s)
	}
	if l := r.Texts("args"); !slices.Equal(l, []string{"--port", "8080", "true"}) {
		t.Errorf("args: %q", l)
	}
	if !r.Bool("quiet", false) || !r.Bool("absent", true) {
		t.Error("a boolean is wrong")
	}
	if n := r.Int("size", 0, 1, 7); n != 7 || r.Int("absent", 5, 0, 9) != 5 {
		t.Errorf("size: %d", n)
	}
	if m := r.Map("sysctl"); !maps.Equal(m, map[string]string{"a": "1", "b": "x"}) {
		t.Errorf("sysctl: %v", m)
	}
	if err := r.Err("test", "hint"); err != nil {
		t.Errorf("a good block: %v", err)
	}
}

// The error names everything that is wrong with a block.
func TestReadRefuses(t *testing.T) {
	r := options.Read(map[string]any{
		"args": "x", "quiet": 1, "size": 8, "whole": 1.5, "sysctl": "a", "nul": "a\x00b", "left": 1,
	})
	r.RequiredText("command")
	r.Texts("args")
	r.Bool("quiet", false)
	r.Int("size", 0, 1, 7)
	r.Int("whole", 0, 1, 7)
	r.Map("sysctl")
	r.Text("nul")
	err := r.Err("test", "hint")
	for _, want := range []string{
		"config of test: ", "command is required", "args must be a list of strings, not a string", "quiet must be true or false",
		"size must be from 1 to 7, not 8", "whole must be a whole number", "sysctl must be a map of strings, not a string",
		"nul cannot hold a NUL byte", `unknown key "left"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	if fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("code %v", fleet.CodeOf(err))
	}
}

// Each block is read without a panic, and an error is bounded and a fleet.CodeInvalid.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"text": "a", "list": ["a", 1], "map": {"a": "b"}, "flag": true, "number": 1}`))
	f.Add([]byte(`{"text": ["a"], "list": {"a": []}, "map": [1, {}], "flag": "yes", "number": 1e99}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var config map[string]any
		if json.Unmarshal(b, &config) != nil {
			return
		}
		r := options.Read(config)
		r.RequiredText("text")
		r.Texts("list")
		r.Map("map")
		r.Bool("flag", false)
		if n := r.Int("number", 1, 1, 9); n < 1 || n > 9 {
			t.Errorf("number %d is out of bounds", n)
		}
		if err := r.Err("test", "hint"); err != nil && fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("refused with %v", err)
		}
	})
}
