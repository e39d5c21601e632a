package hub_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/hub"
)

// lockedBuffer has what a hub logs.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// mustLoseKeys removes the file of the state keys of a hub that is off, and its copy of the CA's key, and returns the file.
func mustLoseKeys(tb testing.TB, cfg hub.Config) (path string, text []byte) {
	tb.Helper()
	folder := filepath.Join(cfg.DataDir, "identity")
	path = filepath.Join(folder, "state-key")
	text, err := os.ReadFile(path)
	for _, file := range []string{path, filepath.Join(folder, "ca-key.pem")} {
		if err == nil {
			err = os.Remove(file)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return path, text
}

// mustReadVariable waits until a hub decrypts the variable of mustStoreVariable. A hub that cannot fetch the key tries again
// after a minute, or when another hub has a new address.
func mustReadVariable(tb testing.TB, h *runningHub) {
	tb.Helper()
	waitWithin(tb, time.Minute+testTimeout, h.cfg.Name+" reads the variable", h.describeState, func() bool { return readVariable(tb, h) == nil })
}

// TestKeyFileMissingOnOneOfThreeHubs: the other two hubs go on while it is off and when it comes back. It gets the keys from
// them, says in its log in which file they were missing, and decrypts and signs again.
func TestKeyFileMissingOnOneOfThreeHubs(t *testing.T) {
	hubs := mustCluster(t, 3)
	for _, h := range hubs {
		h.awaitAuthority()
	}
	hubs[2].stopHub()
	cfg := configOfRestart(t, hubs[2])
	path, before := mustLoseKeys(t, cfg)
	mustStoreVariable(t, hubs[1])
	mustReadVariable(t, hubs[0])
	var log lockedBuffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	again := mustStart(t, cfg)
	again.mustBeReady()
	mustReadVariable(t, again)
	waitUntil(t, "the hub has its file again", again.describeState, func() bool {
		after, err := os.ReadFile(path)
		return err == nil && bytes.Equal(after, before)
	})
	if said := log.String(); !strings.Contains(said, "state key fetched from another hub") || !strings.Contains(said, "missing_in="+path) {
		t.Errorf("it says:\n%s", said)
	}
	again.awaitAuthority()
	mustEnroll(t, again, hubs[0].JoinToken())
	for _, h := range hubs[:2] {
		mustReadVariable(t, h)
	}
}

// TestKeyFileMissingOnAllHubs: three hubs without the file serve all but secrets. Each says which file is missing and what to
// do, and stores no variable. The file of one hub, put back, is enough for all.
func TestKeyFileMissingOnAllHubs(t *testing.T) {
	hubs := mustCluster(t, 3)
	mustStoreVariable(t, hubs[0])
	var paths []string
	var before []byte
	for _, h := range hubs {
		h.awaitAuthority()
	}
	for _, h := range hubs {
		h.stopHub()
	}
	for i, h := range hubs {
		var path string
		path, before = mustLoseKeys(t, h.cfg)
		paths = append(paths, path)
		hubs[i] = mustStart(t, configOfRestart(t, h))
	}
	for _, h := range hubs {
		h.mustBeReady()
		h.mustRegister(job("on-" + h.cfg.Name))
		stored := h.State().View().TableIndex("variables")
		err := readVariable(t, h)
		if err == nil || !strings.Contains(err.Error(), "and this hub has none") || !strings.Contains(err.Error(), "copy the file identity/state-key") {
			t.Errorf("%s: read a variable: %v", h.cfg.Name, err)
		}
		_, _, err = mustNomadClient(t, "http://"+h.HTTPAddr(), nomad.TLSConfig{}).Variables().Update(&nomad.Variable{Path: "app/db", Items: nomad.VariableItems{"password": "q"}}, nil)
		if err == nil || !strings.Contains(err.Error(), "copy the file identity/state-key") || h.State().View().TableIndex("variables") != stored {
			t.Errorf("%s: store a variable: %v", h.cfg.Name, err)
		}
	}
	hubs[0].stopHub()
	if err := os.WriteFile(paths[0], before, 0o600); err != nil {
		t.Fatal(err)
	}
	hubs[0] = mustStart(t, configOfRestart(t, hubs[0]))
	hubs[0].mustBeReady()
	for i, h := range hubs {
		mustReadVariable(t, h)
		if after, err := os.ReadFile(paths[i]); err != nil || !bytes.Equal(after, before) {
			t.Errorf("the file of %s is %q, %v", h.cfg.Name, after, err)
		}
	}
}
