package validate_test

import (
	"strings"
	"testing"

	"skerry/fleet/validate"
)

func TestIsActionName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "flush-cache": true, "größe": true, strings.Repeat("ö", 128): true, "a\u00a0b": true,
		"": false, strings.Repeat("a", 129): false, "a b": false, "a\tb": false, "a\x00": false, "\u200b": false, "a\n": false,
	} {
		if got := validate.IsActionName(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}
