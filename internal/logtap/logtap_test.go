package logtap_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"skerry/fleet"
	"skerry/internal/logtap"
)

func mustListen(tb testing.TB, t *logtap.Monitor, level string, asJSON bool) (*logtap.Listener, *bufio.Scanner) {
	tb.Helper()
	least, err := logtap.ParseLevel(level)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := t.Listen(least, asJSON)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l, bufio.NewScanner(l)
}

// TestListenersHearTheirLevel has two of different levels and shapes: each hears its
// own, and what is logged in the usual way is as it was.
func TestListenersHearTheirLevel(t *testing.T) {
	var usual bytes.Buffer
	tap := logtap.New()
	log := tap.WrapLogger(slog.New(slog.NewTextHandler(&usual, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Info("nobody hears this")
	_, all := mustListen(t, tap, "trace", false)
	warned, _ := mustListen(t, tap, "WARN", true)
	log.With("component", "link").WithGroup("g").Debug("one", "k", "v w")
	log.Warn("two", "n", 2)
	if !all.Scan() || !strings.HasSuffix(all.Text(), `level=DEBUG msg=one component=link g.k="v w"`) {
		t.Errorf("heard %q", all.Text())
	}
	if !all.Scan() || !strings.HasSuffix(all.Text(), "level=WARN msg=two n=2") {
		t.Errorf("heard %q", all.Text())
	}
	var line struct {
		Msg string
		N   int
	}
	if err := json.NewDecoder(warned).Decode(&line); err != nil || line.Msg != "two" || line.N != 2 {
		t.Errorf("heard %+v, %v", line, err)
	}
	if got := usual.String(); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "level=WARN msg=two n=2\n") {
		t.Errorf("logged %q", got)
	}
}

// TestASlowListenerLosesLines logs more than is kept for one who does not read.
func TestASlowListenerLosesLines(t *testing.T) {
	tap := logtap.New()
	log := tap.WrapLogger(slog.New(slog.DiscardHandler))
	_, lines := mustListen(t, tap, "", false)
	const logged = 5000
	for i := range logged {
		log.Info("line", "i", i)
	}
	log.Info(strings.Repeat("x", 1<<20)) // finds no room either
	if !lines.Scan() || lines.Text() != "level=WARN msg=\"lines left out\" lines=4489" {
		t.Fatalf("heard %q", lines.Text())
	}
	for i := range logged - 4488 {
		if !lines.Scan() || !strings.HasSuffix(lines.Text(), "msg=line i="+json.Number(itoa(i)).String()) {
			t.Fatalf("line %d: %q", i, lines.Text())
		}
	}
	log.Info(strings.Repeat("y", 1<<20))
	if !lines.Scan() || len(lines.Text()) > 17<<10 || !strings.HasSuffix(lines.Text(), "y…") {
		t.Errorf("a line of %d bytes", len(lines.Text()))
	}
}

func itoa(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestListenersAreBounded(t *testing.T) {
	tap := logtap.New()
	log := tap.WrapLogger(slog.New(slog.DiscardHandler))
	var first *logtap.Listener
	for i := range logtap.MaxListeners {
		l, _ := mustListen(t, tap, "error", false)
		if i == 0 {
			first = l
		}
	}
	if _, err := tap.Listen(slog.LevelInfo, false); fleet.CodeOf(err) != fleet.CodeUnavailable {
		t.Errorf("one too many: %v", err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		if n, err := first.Read(make([]byte, 10)); n != 0 || err != io.EOF {
			t.Errorf("a closed listener read %d, %v", n, err)
		}
	})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	if _, err := tap.Listen(slog.LevelInfo, false); err != nil {
		t.Errorf("in its place: %v", err)
	}
	if !log.Enabled(t.Context(), slog.LevelInfo) || log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("levels are not those that somebody listens at")
	}
}

func TestParseLevel(t *testing.T) {
	for name, want := range map[string]slog.Level{"": slog.LevelInfo, "DEBUG": slog.LevelDebug, "error": slog.LevelError, "Trace": slog.LevelDebug} {
		if got, err := logtap.ParseLevel(name); err != nil || got != want {
			t.Errorf("%q: %s, %v", name, got, err)
		}
	}
	for _, bad := range []string{"loud", "info+3", "1"} {
		if _, err := logtap.ParseLevel(bad); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
