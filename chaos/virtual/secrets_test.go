package virtual

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/engine"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/fleet"
	"skerry/hub"
	"skerry/hub/audit"
	"skerry/hub/state"
	"skerry/syncproto"
)

const (
	variableValue = "mArKeD-sEcReT-17"
	tokenSecret   = "0f0e0d0c-1111-4222-8333-444455556666"
	joinToken     = "skr1.aGFzaA.tokenid.c2VjcmV0LW9mLWEtam9pbi10b2tlbg"
	identityToken = "aGVhZGVy.Y2xhaW1z.c2lnbmF0dXJlLW9mLWFuLWlkZW50aXR5"
)

// searchedRun returns a run that knows one secret of each kind, and the violations that it finds.
func searchedRun(tb testing.TB) (*run, *[]check.Violation) {
	tb.Helper()
	r := &run{Play: Play{Dir: tb.TempDir()}, s: schedule.Schedule{Access: true}, marks: engine.NewSecretMarks()}
	r.marks.AddToken(engine.SecretToken, tokenSecret)
	r.marks.AddJoinToken(joinToken)
	r.marks.AddIdentity(identityToken)
	seen := new([]check.Violation)
	r.recorder = &engine.Recorder{Monitor: check.NewMonitor(check.Limits{}), Clock: func() time.Duration { return time.Second }, Found: func(v check.Violation) { *seen = append(*seen, v) }}
	return r, seen
}

// A secret is found in any file but those that are there to have it.
func TestSecretsAreFoundInFiles(t *testing.T) {
	var snapshot bytes.Buffer
	store := state.New()
	store.Apply(1, state.Pool{Pool: fleet.Pool{Name: "pool", Description: tokenSecret}})
	if err := store.Persist(&snapshot); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, text string
		found      engine.SecretKind
	}{
		{"hub-1/raft/log/1.wal", variableValue, engine.SecretVariable},
		{"hub-1.log", tokenSecret, engine.SecretToken},
		{"copy-10m0s-hub-1/state.db", joinToken, engine.SecretJoinToken},
		{"edge-1/journal.db-wal", identityToken, engine.SecretIdentity},
		{"edge-1/allocs/a1/main/local/value", variableValue, engine.SecretVariable},
		{"edge-1/allocs/a1/main/secrets/value", variableValue, ""},
		{"edge-1/allocs/a1/main/secrets/sub/file", identityToken, ""},
		{"edge-1/allocs/a1/main/secrets/value", variableValue + tokenSecret, engine.SecretToken},
		{"hub-1/join-token", joinToken, ""},
		{"hub-1/join-token", joinToken + tokenSecret, engine.SecretToken},
		{"edge-1/identity/join-token", joinToken, engine.SecretJoinToken},
		{"hub-1/audit/1.jsonl", "another-text-that-has-" + tokenSecret[1:], ""},
		{"hub-1/raft/snapshots/1/state.bin", snapshot.String(), engine.SecretToken},
		{"hub-1/raft/snapshots/1/state.bin", snapshot.String()[:9], ""},
	} {
		r, seen := searchedRun(t)
		path := filepath.Join(r.Dir, tc.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		text := tc.text
		if !strings.HasPrefix(text, snapshot.String()[:8]) {
			text = "\x00\x01" + text + "\x02"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.searchFiles()
		if tc.found == "" && len(*seen) == 0 {
			continue
		}
		if got := *seen; len(got) != 1 || got[0].Invariant != check.SecretsSealed || !strings.Contains(got[0].Message, tc.name+": "+string(tc.found)) {
			t.Errorf("%s with %q: %v, want %q", tc.name, tc.text, got, tc.found)
		}
	}
}

// A secret is found in messages to edges, commands, errors and the history. A request that delivers secrets may have those alone.
func TestSecretsAreFoundInMessages(t *testing.T) {
	for name, tc := range map[string]struct {
		search func(r *run)
		found  engine.SecretKind
	}{
		"variables":           {func(r *run) { r.observeMessage("edge-1", variables(variableValue)) }, ""},
		"token in a variable": {func(r *run) { r.observeMessage("edge-1", variables(tokenSecret)) }, engine.SecretToken},
		"identity in a variable": {func(r *run) {
			r.observeMessage("edge-1", variables("from-now-on.the-signature-of-it"))
			r.observeMessage("edge-1", syncproto.Request{Kind: syncproto.RequestIdentities, Identities: []syncproto.DeliveredIdentity{{Token: "from-now-on.the-signature-of-it"}}})
			r.observeMessage("edge-1", variables("from-now-on.the-signature-of-it"))
		}, engine.SecretIdentity},
		"refusal": {func(r *run) { r.observeMessage("edge-1", syncproto.Refused{Message: joinToken}) }, engine.SecretJoinToken},
		"command": {func(r *run) {
			r.searchCommand("hub-1", hub.Applied{Index: 7, Command: state.JobRegister{Job: &fleet.Job{Name: tokenSecret}}})
			r.searchCommand("hub-2", hub.Applied{Index: 7, Command: state.JobRegister{Job: &fleet.Job{Name: tokenSecret}}})
		}, engine.SecretToken},
		"error":               {func(r *run) { r.searchRefusal(check.Answer{Status: 403}, []byte("no "+tokenSecret)) }, engine.SecretToken},
		"conflict":            {func(r *run) { r.searchRefusal(check.Answer{Status: 409}, []byte(variableValue)) }, ""},
		"token in a conflict": {func(r *run) { r.searchRefusal(check.Answer{Status: 409}, []byte(tokenSecret)) }, engine.SecretToken},
		"history": {func(r *run) {
			r.searched = &engine.SearchedWriter{W: io.Discard, Marks: r.marks}
			var err error
			if r.recorder.History, err = history.NewWriter(r.searched, history.Header{Clock: history.Virtual}); err != nil {
				panic(err)
			}
			r.recorder.Note("edge-1", tokenSecret)
			r.searchFiles()
		}, engine.SecretToken},
		"history in two parts": {func(r *run) {
			r.searched = &engine.SearchedWriter{W: io.Discard, Marks: r.marks}
			_, _ = io.WriteString(r.searched, "xyz"+tokenSecret[:9])
			_, _ = io.WriteString(r.searched, tokenSecret[9:])
			r.recorder.History, _ = history.NewWriter(r.searched, history.Header{Clock: history.Virtual})
			r.searchFiles()
		}, engine.SecretToken},
	} {
		r, seen := searchedRun(t)
		r.users = &engine.Users{}
		tc.search(r)
		if got := *seen; tc.found == "" && len(got) > 0 || tc.found != "" && (len(got) != 1 || !strings.Contains(got[0].Message, string(tc.found))) {
			t.Errorf("%s: %v, want %q", name, got, tc.found)
		}
	}
}

// variables returns the request that delivers a variable.
func variables(value string) syncproto.Request {
	return syncproto.Request{Kind: syncproto.RequestVariables, Variables: []syncproto.DeliveredVariable{{Path: "p", Items: []byte(value)}}}
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
