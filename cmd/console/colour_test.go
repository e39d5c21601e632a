package console_test

import (
	"bytes"
	"testing"

	"skerry/cmd/console"
)

func TestMarked(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"Nothing changes.\n":       "Nothing changes.\n",
		"+ job \"a\"\n":            "\x1b[32m+ job \"a\"\x1b[0m\n",
		"  - Count: \"1\"\nrest":   "\x1b[31m  - Count: \"1\"\x1b[0m\nrest",
		"    ~ Env[A]: 1 => 2":     "\x1b[33m    ~ Env[A]: 1 => 2\x1b[0m",
		"-1 of them\n+\n  ~x  ~ y": "-1 of them\n\x1b[32m+\x1b[0m\n  ~x  ~ y",
	} {
		if got := console.Marked(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestColouredIsForTerminals(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if console.Coloured(new(bytes.Buffer)) {
		t.Error("what is no terminal gets colours")
	}
}
