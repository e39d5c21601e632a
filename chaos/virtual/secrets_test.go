package virtual

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/schedule"
	"skerry/hub/audit"
)

// A value of a variable is found in any file but those in the folder of a task for its secrets.
func TestSecretsAreFoundInFiles(t *testing.T) {
	for name, found := range map[string]bool{
		"hub-1/raft/log/1.wal":                   true,
		"hub-1.log":                              true,
		"copy-10m0s-hub-1/state.db":              true,
		"edge-1/journal.db-wal":                  true,
		"edge-1/allocs/a1/main/local/value":      true,
		"edge-1/allocs/a1/main/secrets/value":    false,
		"edge-1/allocs/a1/main/secrets/sub/file": false,
	} {
		r := &run{Play: Play{Dir: t.TempDir()}, s: schedule.Schedule{Access: true}}
		var seen []check.Violation
		r.recorder = &engine.Recorder{Monitor: check.NewMonitor(check.Limits{}), Clock: func() time.Duration { return time.Second }, Found: func(v check.Violation) { seen = append(seen, v) }}
		path := filepath.Join(r.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("\x00\x01"+engine.SecretMarks()[0]+"17\x02"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.searchFiles()
		if got := len(seen) == 1 && seen[0].Invariant == check.SecretsSealed && strings.Contains(seen[0].Message, name); got != found || !found && len(seen) > 0 {
			t.Errorf("%s: %v", name, seen)
		}
	}
}

// The audit of a hub is read over its files. One that lost or changed an entry is broken.
func TestAuditsAreRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := audit.Open(audit.Config{Dir: dir, Hub: "hub-1", Now: time.Now, Log: slog.New(slog.DiscardHandler), FileBytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		verb := []string{"PUT", "GET"}[i%2]
		l.Append(api.AuditEntry{Verb: verb, Object: "/v1/jobs", Status: 200, Index: 7})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var a check.Audit
	if err := readAudit(dir, &a); err != nil || len(a.Entries) != 6 || a.Entries[0] != (check.AuditEntry{Verb: "PUT", Object: "/v1/jobs", Status: 200, Index: 7}) {
		t.Fatalf("%v, %+v", err, a)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	whole, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	for what, changed := range map[string][]byte{
		"an entry is changed": bytes.Replace(whole, []byte("/v1/jobs"), []byte("/v1/none"), 1),
		"an entry is missing": whole[bytes.IndexByte(whole, '\n')+1:],
		"half a line":         whole[:len(whole)-5],
	} {
		if err := os.WriteFile(files[1], changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := readAudit(dir, &check.Audit{}); err == nil {
			t.Errorf("%s: it verifies", what)
		}
	}
}
