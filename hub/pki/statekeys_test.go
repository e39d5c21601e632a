package pki_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/state"
)

// fakeWrapper wraps with a version of its key, and fails at the call whose number is failAt.
type fakeWrapper struct {
	version int
	failAt  int
	calls   int
	away    bool
	answer  string // in place of the wrapped key
}

func (f *fakeWrapper) Kind() string { return "transit" }

func (f *fakeWrapper) call() error {
	if f.calls++; f.calls == f.failAt || f.away {
		return errors.New("the server is away")
	}
	return nil
}

func (f *fakeWrapper) Wrap(_ context.Context, plain []byte) (string, error) {
	if err := f.call(); err != nil || f.answer != "" {
		return f.answer, err
	}
	return fmt.Sprintf("vault:v%d:%s", f.version, base64.StdEncoding.EncodeToString(flipBytes(plain))), nil
}

func (f *fakeWrapper) Unwrap(_ context.Context, wrapped string) ([]byte, error) {
	if err := f.call(); err != nil {
		return nil, err
	}
	parts := strings.SplitN(wrapped, ":", 3)
	b, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	return flipBytes(b), err
}

func flipBytes(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] ^= 0xa5
	}
	return b
}

func mustOpenKeys(tb testing.TB, dir string, w *fakeWrapper, wrap bool) *pki.StateKeys {
	tb.Helper()
	cfg := pki.StateKeysConfig{Dir: dir, Wrap: wrap, Log: slog.New(slog.DiscardHandler)}
	if w != nil {
		cfg.Wrapper = w
	}
	keys, err := pki.OpenStateKeys(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

// mustKeyFile returns the file of the state keys. No other file of the folder has a key in clear.
func mustKeyFile(tb testing.TB, dir string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "state-key"))
	if err != nil {
		tb.Fatal(err)
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 1 {
		tb.Errorf("the folder has %v, %v", all, err)
	}
	return string(text)
}

func TestStateKeysAreKept(t *testing.T) {
	dir := t.TempDir()
	keys := mustOpenKeys(t, dir, nil, false)
	if known := keys.Known(); len(known) != 0 {
		t.Fatalf("nothing there: %v", known)
	}
	var last pki.StateKey
	for range 20 {
		last = pki.NewStateKey()
		for range 2 {
			if err := keys.Add(t.Context(), last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if fi, err := os.Stat(filepath.Join(dir, "state-key")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("the file's mode: %v, %v", fi, err)
	}
	for _, k := range []*pki.StateKeys{keys, mustOpenKeys(t, dir, nil, false)} {
		if known := k.Known(); len(known) != 16 || known[15] != last {
			t.Fatalf("%v", known)
		}
	}
	if text := last.String() + last.LogValue().String(); strings.Contains(text, hex.EncodeToString(last[:4])) {
		t.Fatalf("it is shown: %s", text)
	}
}

// TestStateKeysMove: a hub wraps the keys that it has in clear, wraps them anew at each start, and brings them back into clear.
func TestStateKeysMove(t *testing.T) {
	dir := t.TempDir()
	key, other := pki.NewStateKey(), pki.NewStateKey()
	if err := mustOpenKeys(t, dir, nil, false).Add(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	clear := mustKeyFile(t, dir)
	if err := os.WriteFile(filepath.Join(dir, ".state-key.17"), []byte(clear), 0o600); err != nil { // of a hub that was killed
		t.Fatal(err)
	}
	for version := 1; version <= 2; version++ {
		keys := mustOpenKeys(t, dir, &fakeWrapper{version: version}, true)
		if err := keys.Settle(t.Context()); err != nil || keys.Known()[0] != key {
			t.Fatal(keys.Known(), err)
		}
		if text := mustKeyFile(t, dir); !strings.HasPrefix(text, fmt.Sprintf("skerry-state-key-2 transit %s vault:v%d:", key.ID(), version)) {
			t.Errorf("the file has %q", text)
		}
	}
	keys := mustOpenKeys(t, dir, &fakeWrapper{version: 3}, true)
	if err := errors.Join(keys.Settle(t.Context()), keys.Check(t.Context()), keys.Add(t.Context(), other)); err != nil {
		t.Fatal(err)
	}
	if text := mustKeyFile(t, dir); strings.Contains(text, "key-1") || strings.Count(text, "vault:v3:") != 2 {
		t.Errorf("the file has %q", text)
	}
	back := mustOpenKeys(t, dir, &fakeWrapper{}, false)
	if err := back.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := mustKeyFile(t, dir); !strings.HasPrefix(text, clear) || strings.Contains(text, "vault") {
		t.Errorf("the file has %q", text)
	}
	if known := mustOpenKeys(t, dir, nil, false).Known(); len(known) != 2 || known[0] != key || known[1] != other {
		t.Errorf("%v", known)
	}
}

// TestEachAnswerFails: a server that fails at any request loses no key, and the file is as before or as it should be.
func TestEachAnswerFails(t *testing.T) {
	for at := 1; at <= 8; at++ {
		dir := t.TempDir()
		keys := []pki.StateKey{pki.NewStateKey(), pki.NewStateKey()}
		w := &fakeWrapper{version: 1, failAt: at}
		var failed int
		for _, wrap := range []bool{false, true, true} {
			s := mustOpenKeys(t, dir, w, wrap)
			if err := s.Settle(t.Context()); err != nil {
				failed++
			}
			for _, key := range keys {
				if err := s.Add(t.Context(), key); err != nil {
					failed++
				}
			}
		}
		if (failed > 0) != (w.calls >= at) {
			t.Errorf("request %d fails: %d failures, after %d requests", at, failed, w.calls)
		}
		s := mustOpenKeys(t, dir, &fakeWrapper{version: 2}, true)
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if known := s.Known(); len(known) != 2 || known[0] != keys[0] || known[1] != keys[1] || strings.Contains(mustKeyFile(t, dir), "key-1") {
			t.Errorf("request %d fails: %v", at, known)
		}
	}
}

// TestServerThatIsAway: a hub starts while the server that wrapped its key is away, and says so. It takes the key from another
// hub without the server, and has its own again once the server is back.
func TestServerThatIsAway(t *testing.T) {
	dir := t.TempDir()
	key := pki.NewStateKey()
	if err := mustOpenKeys(t, dir, &fakeWrapper{version: 1}, true).Add(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	cluster := state.Cluster{ID: "c1", CAKey: []byte("a key"), GossipKey: []byte("gossip")}
	seal, err := key.Seal(cluster)
	if err != nil {
		t.Fatal(err)
	}
	w := &fakeWrapper{version: 1, away: true}
	keys := mustOpenKeys(t, dir, w, true)
	ring := pki.NewKeyring(pki.KeyringConfig{Keys: keys, State: state.New(), Others: func() []string { return nil }})
	if err := ring.FetchMissing(t.Context(), true); err != nil {
		t.Fatalf("without a cluster: %v", err)
	}
	_, err = ring.Open(cluster.WithSeal(seal))
	if e := fleet.AsError(err); e == nil || e.Code != fleet.CodeUnavailable || !strings.Contains(e.Message, "only wrapped") || !strings.Contains(e.Message, "the server is away") {
		t.Errorf("while it is away: %v", err)
	}
	if err := keys.Add(t.Context(), key); err != nil { // what another hub gave
		t.Fatal(err)
	}
	if _, err := ring.Open(cluster.WithSeal(seal)); err != nil {
		t.Errorf("with the key of another hub: %v", err)
	}
	if err := keys.Check(t.Context()); err == nil {
		t.Error("the check of a server that is away succeeds")
	}
	again := mustOpenKeys(t, dir, w, true)
	if err := again.Settle(t.Context()); err == nil || len(again.Known()) > 0 {
		t.Errorf("while it is away: %v, %v", again.Known(), err)
	}
	w.away = false
	if err := again.Settle(t.Context()); err != nil || len(again.Known()) != 1 {
		t.Errorf("once it is back: %v, %v", again.Known(), err)
	}
}

// TestWrappedKeysAreChecked: a file of another kind, or of another key, and a server that answers nonsense are errors.
func TestWrappedKeysAreChecked(t *testing.T) {
	key := pki.NewStateKey()
	dir := t.TempDir()
	if err := mustOpenKeys(t, dir, &fakeWrapper{version: 1}, true).Add(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	text := mustKeyFile(t, dir)
	for name, tc := range map[string]struct {
		text string
		w    *fakeWrapper
		says string
	}{
		"not configured":  {text, nil, "wrapped by transit, which this hub is not configured for (give the hub the flags --keyring-transit-…)"},
		"another kind":    {strings.Replace(text, "transit", "hsm", 1), &fakeWrapper{}, "wrapped by hsm"},
		"another key":     {strings.Replace(text, key.ID(), "0123456789abcdef", 1), &fakeWrapper{}, "it is another one, " + key.ID()},
		"a damaged text":  {strings.Replace(text, "vault:v1:", "vault:v1:!", 1), &fakeWrapper{}, "illegal base64"},
		"another length":  {"skerry-state-key-2 transit 00 vault:v1:AAAA\n", &fakeWrapper{}, "3 bytes, not 32"},
		"a wrong answer":  {"", &fakeWrapper{answer: "two words"}, "not a wrapped key"},
		"an empty answer": {"", &fakeWrapper{answer: "\x00"}, "not a wrapped key"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "state-key"), []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys := mustOpenKeys(t, dir, tc.w, tc.w != nil)
		err := keys.Settle(t.Context())
		if tc.text == "" {
			err = keys.Add(t.Context(), key)
		}
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.ReadFile(filepath.Join(dir, "state-key")); err != nil || string(after) != tc.text {
			t.Errorf("%s: the file became %q, %v", name, after, err)
		}
	}
}
