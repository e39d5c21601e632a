package console_test

import (
	"bytes"
	"errors"
	"regexp"
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

// TestTableColoursStates checks that states have colours where the output has them, that columns
// stay aligned, and that nothing else has one.
func TestTableColoursStates(t *testing.T) {
	table := console.Table{Heads: []string{"NODE", "STATUS", "HUB"}}
	table.Add("ready", "disconnected", "hub1")
	table.Add("b", "ready", "hub2")
	pairs := console.Table{}
	pairs.Add("Status", "failed: no such program")
	pairs.Add("Name", "running")
	var coloured, without bytes.Buffer
	for w, colours := range map[*bytes.Buffer]bool{&coloured: true, &without: false} {
		out := &console.Output{Writer: w, Colours: colours}
		if err := errors.Join(table.Write(out), pairs.Write(out)); err != nil {
			t.Fatal(err)
		}
	}
	const want = "NODE   STATUS        HUB\nready  \x1b[33mdisconnected\x1b[0m  hub1\nb      \x1b[32mready\x1b[0m         hub2\n" +
		"Status  \x1b[31mfailed\x1b[0m: no such program\nName    running\n"
	if got := coloured.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got, want := without.String(), regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(want, ""); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
