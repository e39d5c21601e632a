package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/internal/codec"
)

// memory is a journal in memory.
type memory struct {
	mu      sync.Mutex
	handles map[string][]byte
	rows    []fleet.Transition
	full    bool
}

func (m *memory) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, rows ...fleet.Transition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return errors.New("the disk is full")
	}
	m.handles[key], m.rows = handle, append(m.rows, rows...)
	return nil
}

func (m *memory) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.handles), nil
}

func (m *memory) setFull(full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = full
}

// journaled lists the journaled lines: their numbers, with the verb.
func (m *memory) journaled() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var got []string
	for _, r := range m.rows {
		got = append(got, fmt.Sprintf("%d %s", r.Site.Seq, r.Site.Verb))
	}
	return strings.Join(got, ", ")
}

func mustOpen(tb testing.TB, dir string, m *memory) *Log {
	tb.Helper()
	l, err := Open(Config{Dir: dir, Journal: m, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() }) // a second time, where a test has done so
	return l
}

func act(verb string) fleet.SiteAction {
	return fleet.SiteAction{Verb: verb, Object: "1d697ed5/web", User: "anna", UID: "1000", Reason: "it smokes"}
}

// TestActionsReachTheJournal: each action is journaled once and in order, over restarts and failures of the journal.
func TestActionsReachTheJournal(t *testing.T) {
	dir, m := filepath.Join(t.TempDir(), "audit"), &memory{handles: map[string][]byte{}}
	l := mustOpen(t, dir, m)
	l.Append(t.Context(), act("stop"))
	m.setFull(true)
	l.Append(t.Context(), act("start"))
	l.Append(t.Context(), act("exec"))
	if got := m.journaled(); got != "1 stop" {
		t.Errorf("the full journal has %s", got)
	}
	l.Close()
	m.setFull(false)
	l = mustOpen(t, dir, m)
	l.Append(t.Context(), act("restart"))
	if got := m.journaled(); got != "1 stop, 2 start, 3 exec, 4 restart" {
		t.Errorf("the journal has %s", got)
	}
	row := m.rows[1]
	if row.Kind != fleet.TransitionSite || row.Message != "anna: start 1d697ed5/web: it smokes" || row.Site.Chain == "" || row.Site.Chain != m.rows[3].Site.Chain || row.Site.Prev == "" || row.Site.Time.IsZero() {
		t.Errorf("the row is %+v, of %+v", row, row.Site)
	}
	if info, err := os.Stat(filepath.Join(dir, "00000000000000000001.jsonl")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}

	// A journal that lost its rows gets all lines again: the hubs know which ones they have.
	l.Close()
	lost := &memory{handles: map[string][]byte{journalKey: {1, 2}}}
	l = mustOpen(t, dir, lost)
	l.Append(t.Context(), act("stop"))
	if got := lost.journaled(); got != "1 stop, 2 start, 3 exec, 4 restart, 5 stop" || lost.rows[4].Site.Chain != row.Site.Chain {
		t.Errorf("the new journal has %s", got)
	}
	// An audit that is gone is followed by another one.
	l.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, lost)
	l.Append(t.Context(), act("stop"))
	if last := lost.rows[len(lost.rows)-1].Site; last.Seq != 1 || last.Chain == row.Site.Chain {
		t.Errorf("after the loss of the audit: %+v", last)
	}
}

// TestRunJournals journals without another action what could not be journaled.
func TestRunJournals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{handles: map[string][]byte{}, full: true}
		l := mustOpen(t, filepath.Join(t.TempDir(), "audit"), m)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		for range 2*maxRows + 1 {
			l.Append(t.Context(), act("stop"))
		}
		m.setFull(false)
		time.Sleep(retryInterval)
		synctest.Wait()
		if n := len(m.rows); n != 2*maxRows+1 {
			t.Errorf("%d rows are journaled", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestLostLinesAreCounted: lines that cannot be written are counted, and so are told to the hubs.
func TestLostLinesAreCounted(t *testing.T) {
	dir, m := filepath.Join(t.TempDir(), "audit"), &memory{handles: map[string][]byte{}}
	l := mustOpen(t, dir, m)
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // where the folder has to be
		t.Fatal(err)
	}
	l.Append(t.Context(), act("stop"))
	l.Append(t.Context(), act("stop"))
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	l.Append(t.Context(), act("start"))
	if got := m.journaled(); got != "1 lost, 2 start" || m.rows[0].Site.Lost != 2 || m.rows[0].Message != "2 actions on site could not be written down" {
		t.Errorf("the journal has %s, first %+v", got, m.rows[0])
	}
	var text bytes.Buffer
	if err := l.Copy(&text, 1); err != nil || strings.Count(text.String(), "\n") != 1 {
		t.Errorf("after line 1: %q, %v", &text, err)
	}
}

// FuzzDecodeRecord: no bytes make it panic.
func FuzzDecodeRecord(f *testing.F) {
	good, err := codec.Marshal(record{recordVersion, "c", 7})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, err := decodeRecord(raw); err == nil && r.Version != recordVersion {
			t.Fatalf("%+v", r)
		}
	})
}
