package audit_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/api"
	"skerry/hub/audit"
	"skerry/internal/hashchain"
)

func config(dir string) audit.Config {
	return audit.Config{Dir: dir, Hub: "hub1", Now: time.Now, Log: slog.New(slog.DiscardHandler)}
}

func mustOpen(tb testing.TB, cfg audit.Config) *audit.Log {
	tb.Helper()
	l, err := audit.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() }) // a second time, where a test has done so
	return l
}

// mustRead returns the entries after a number, and checks that each follows from the one before.
func mustRead(tb testing.TB, l *audit.Log, after uint64) []api.AuditEntry {
	tb.Helper()
	var text bytes.Buffer
	if err := l.Copy(&text, after); err != nil {
		tb.Fatal(err)
	}
	var entries []api.AuditEntry
	prev := ""
	for line := range bytes.Lines(text.Bytes()) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		var e api.AuditEntry
		if err := json.Unmarshal(line, &e); err != nil {
			tb.Fatalf("%s: %v", line, err)
		}
		if n := len(entries); n > 0 && (e.Seq != entries[n-1].Seq+1 || e.Prev != prev) {
			tb.Errorf("entry %d does not follow from the one before", e.Seq)
		}
		prev = hashchain.Hash(line)
		entries = append(entries, e)
	}
	return entries
}

// Entries are there in order, after a restart too, over all files that are kept.
func TestEntriesAreKept(t *testing.T) {
	cfg := config(filepath.Join(t.TempDir(), "audit"))
	cfg.FileBytes, cfg.Files = 400, 3
	for start := range 3 {
		l := mustOpen(t, cfg)
		if start == 0 {
			if entries := mustRead(t, l, 0); len(entries) > 0 {
				t.Fatalf("before the first: %+v", entries)
			}
		}
		var appending sync.WaitGroup
		for range 5 {
			appending.Go(func() { l.Append(api.AuditEntry{Verb: "PUT", Object: "/v1/jobs", Status: 200, Source: "192.0.2.9"}) })
		}
		appending.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := mustOpen(t, cfg)
	entries := mustRead(t, l, 0)
	if n := len(entries); n < 4 || n > 9 || entries[n-1].Seq != 15 || entries[0].Hub != "hub1" || entries[0].Time.IsZero() {
		t.Errorf("%d entries are left: %+v", n, entries)
	}
	if newest := mustRead(t, l, 13); len(newest) != 2 || newest[0].Seq != 14 {
		t.Errorf("after the 13th: %+v", newest)
	}
	files, err := filepath.Glob(filepath.Join(cfg.Dir, "*.jsonl"))
	if err != nil || len(files) != 3 {
		t.Errorf("files: %v, %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
}

// Half a line at the end is cut off; a changed line before it is an error.
func TestTheEndOfADamagedFile(t *testing.T) {
	cfg := config(t.TempDir())
	l := mustOpen(t, cfg)
	for range 3 {
		l.Append(api.AuditEntry{Verb: "PUT"})
	}
	l.Close()
	path := filepath.Join(cfg.Dir, "00000000000000000001.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(bytes.Clone(whole), `{"Seq":4,"Ti`...), 0o600); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, cfg)
	l.Append(api.AuditEntry{Verb: "DELETE"})
	if entries := mustRead(t, l, 0); len(entries) != 4 || entries[3].Verb != "DELETE" {
		t.Errorf("%+v", entries)
	}
	l.Close()
	if err := os.WriteFile(path, bytes.Replace(whole, []byte(`"Seq":2`), []byte(`"Seq":7`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Open(cfg); err == nil || !strings.Contains(err.Error(), "entry 2 is damaged") || !strings.Contains(err.Error(), cfg.Dir) {
		t.Errorf("a damaged entry: %v", err)
	}
}

// Entries that cannot be written are counted, and the count is the next entry.
func TestLostEntriesAreCounted(t *testing.T) {
	dir := t.TempDir()
	cfg := config(filepath.Join(dir, "audit"))
	l := mustOpen(t, cfg)
	if err := os.WriteFile(cfg.Dir, nil, 0o600); err != nil { // where the folder has to be
		t.Fatal(err)
	}
	for range 3 {
		l.Append(api.AuditEntry{Verb: "PUT"})
	}
	if err := os.Remove(cfg.Dir); err != nil {
		t.Fatal(err)
	}
	l.Append(api.AuditEntry{Verb: "DELETE"})
	if entries := mustRead(t, l, 0); len(entries) != 2 || entries[0].Verb != api.AuditLost || entries[0].Lost != 3 || entries[1].Verb != "DELETE" {
		t.Errorf("%+v", entries)
	}
}

// FuzzOpen feeds files: each is refused, or entries can be appended to it.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"Seq":1}` + "\n"))
	f.Add([]byte(`{"Seq":1}` + "\n" + `{"Seq":2`))
	f.Add([]byte("\n"))
	cfg := config(f.TempDir())
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(cfg.Dir, "00000000000000000001.jsonl"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := audit.Open(cfg)
		if err != nil {
			return
		}
		defer l.Close()
		l.Append(api.AuditEntry{Verb: "PUT"})
		var out bytes.Buffer
		if err := l.Copy(&out, 0); err != nil || !bytes.HasSuffix(out.Bytes(), []byte("}\n")) {
			t.Fatalf("%q, %v", &out, err)
		}
	})
}

// The oldest file may be removed between the list of files and its opening: the entries of the others are read.
func TestFileThatIsRemovedMeanwhile(t *testing.T) {
	cfg := config(filepath.Join(t.TempDir(), "audit"))
	cfg.FileBytes = 400
	l := mustOpen(t, cfg)
	for range 10 {
		l.Append(api.AuditEntry{Verb: "PUT", Object: "/v1/jobs"})
	}
	oldest := filepath.Join(cfg.Dir, "00000000000000000001.jsonl")
	if err := os.Remove(oldest); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", oldest); err != nil { // it is listed, and not there
		t.Fatal(err)
	}
	if entries := mustRead(t, l, 0); len(entries) == 0 || entries[0].Seq == 1 || entries[len(entries)-1].Seq != 10 {
		t.Errorf("read: %+v", entries)
	}
}
