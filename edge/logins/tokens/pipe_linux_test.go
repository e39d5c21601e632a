package tokens_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"skerry/fleet"
)

// TestTokenFileIsAPipe: a task that puts a pipe in place of its token's file does not keep its watcher from ending.
func TestTokenFileIsAPipe(t *testing.T) {
	f := newFixture(t, &fleet.Vault{Role: "shop"})
	f.mustDeliver()
	f.mustPrepare()
	file := filepath.Join(f.p.Config.SecretsDir, "vault_token")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	stop, ended := f.watch(), make(chan struct{})
	go func() { stop(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it waits for a writer")
	}
}
