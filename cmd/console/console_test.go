package console_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"skerry/cmd/console"
	"skerry/fleet"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Microsecond: "2ms", 59 * time.Second: "59s", 61 * time.Second: "1m1s",
		2*time.Hour + 3*time.Minute: "2h3m", 49 * time.Hour: "2d1h", -time.Minute: "-1m0s",
	} {
		if got := console.Span(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
	if got := console.Ago(time.Unix(100, 0), time.Time{}); got != "never" {
		t.Errorf("zero: %s", got)
	}
	if got := console.Ago(time.Unix(100, 0), console.Nano(40*1e9)); got != "1m0s ago" {
		t.Errorf("a minute: %s", got)
	}
	if !console.Nano(0).IsZero() {
		t.Error("0 nanoseconds are no time")
	}
}

// TestLocalTime writes times where the clock on the wall is two hours ahead of UTC.
func TestLocalTime(t *testing.T) {
	here := time.Local
	t.Cleanup(func() { time.Local = here })
	time.Local = time.FixedZone("here", 2*60*60)
	at := time.Date(2026, 6, 30, 22, 30, 0, 0, time.UTC)
	for name, got := range map[string]string{"LocalTime": console.LocalTime(at), "LocalNano": console.LocalNano(at.UnixNano())} {
		if got != "2026-07-01 00:30:00" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	table := console.Table{Heads: []string{"A", "B"}}
	if err := table.Write(&b); err != nil || b.Len() != 0 {
		t.Errorf("an empty table: %q, %v", b.String(), err)
	}
	table.Add("long cell", 1)
	table.Add(fleet.NodeReady, "two\nlines")
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	if want := "A          B\nlong cell  1\nready      two lines\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// What a task says is no order to the terminal that it is shown on.
func TestControlCharacters(t *testing.T) {
	const evil = "busy\x1b]0;owned\x07\x1b[2J\u009b1m\xffé"
	var b strings.Builder
	table := console.Table{}
	table.Add("a\tb", evil)
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	console.Fail(&b, "skerry", errors.New("one\n\ttwo "+evil))
	console.Fail(&b, "skerry", fleet.Errorf(fleet.CodeInvalid, "%s", evil).WithHint("%s", evil))
	if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }) || !utf8.ValidString(b.String()) {
		t.Errorf("a terminal would obey %q", b.String())
	}
	if !strings.Contains(b.String(), "a b  busy") || !strings.Contains(b.String(), "one\n\ttwo busy") || !strings.Contains(b.String(), "é") {
		t.Errorf("got %q", b.String())
	}
}

func TestFail(t *testing.T) {
	hinted := fleet.Errorf(fleet.CodeInvalid, "open it: no").WithHint("try again")
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{errors.New("plain"), 1, "p: plain\n"},
		{hinted, 1, "p: open it: no\nHint: try again\n"},
		{fmt.Errorf("start: %w", hinted), 1, "p: start: open it: no\nHint: try again\n"},
		{&console.ExitError{Code: 2, Err: errors.New("it waits"), Hint: "promote it"}, 2, "p: it waits\nHint: promote it\n"},
		{&console.ExitError{Code: 2, Err: hinted}, 2, "p: open it: no\nHint: try again\n"},
		{&console.ExitError{Code: 2, Err: errors.New("waits")}, 2, "p: waits\n"},
		{&console.ExitError{Code: 130, Err: errors.New("left"), Silent: true}, 130, ""},
	} {
		var b strings.Builder
		if code := console.Fail(&b, "p", c.err); code != c.code || b.String() != c.want {
			t.Errorf("%v: exit %d %q, want %d %q", c.err, code, b.String(), c.code, c.want)
		}
	}
}

func TestTransition(t *testing.T) {
	for want, tr := range map[string]fleet.Transition{
		"task web: Terminated: exit code 1 → failed (gave up)": {Kind: fleet.TransitionAlloc, Task: "web",
			Event: &fleet.TaskEvent{Type: "Terminated", DisplayMessage: "exit code 1"}, ClientStatus: "failed", ClientDescription: "gave up"},
		"task web: running":                    {Kind: fleet.TransitionTask, Task: "web", TaskState: &fleet.TaskState{State: "running"}},
		"the link is gone 3 beats missed":      {Kind: fleet.TransitionDisconnect, Message: "3 beats missed"},
		"the link is back":                     {Kind: fleet.TransitionReconnect},
		"the agent started, boot 12345678":     {Kind: fleet.TransitionAgent, BootID: "12345678-9"},
		"7 rows were dropped here":             {Kind: fleet.TransitionGap, Dropped: 7},
		"somebody on site: stopped → complete": {Kind: fleet.TransitionOperator, Message: "stopped", ClientStatus: "complete"},
		"health":                               {Kind: fleet.TransitionHealth},
	} {
		if got := console.Transition(&tr); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
