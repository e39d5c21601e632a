package edge_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry/edge/machinekey"
	"skerry/fleet"
)

// otherMachine is a keeper that never sealed what it is given.
type otherMachine struct{}

func (otherMachine) Place() machinekey.Place { return machinekey.PlaceTPM }

func (otherMachine) Seal(plain []byte) ([]byte, error) { return plain, nil }

func (otherMachine) Unseal([]byte) ([]byte, error) {
	return nil, fmt.Errorf("unseal the machine's key: %w", machinekey.ErrForeign)
}

// TestEdgeWithoutItsKey: an edge whose key was sealed by another machine starts, without a link. It runs its tasks, says why it
// has no secrets, and does not touch the key, which may be needed again.
func TestEdgeWithoutItsKey(t *testing.T) {
	dir := mustEnrolled(t, shop)
	path := filepath.Join(dir, "identity", "machine-key")
	mustWriteFile(t, path, []byte("skerry-machine-key-2 tpm AAAA\n"))
	logs := &logBuffer{}
	cfg := config(dir, nil, logs)
	cfg.KeyKeepers = []machinekey.Keeper{otherMachine{}}
	l := mustStart(t, cfg)
	mustRecover(t, l)
	s, err := l.Status(t.Context())
	if err != nil || s.Key.Place != "memory" || s.Key.Wanted != "tpm" || !strings.Contains(s.Key.LastError, "another one sealed it") {
		t.Errorf("the status is %+v, %v", s.Key, err)
	}
	rows, err := l.History(t.Context(), "")
	if err != nil || !slices.ContainsFunc(rows, func(r fleet.Transition) bool { return strings.Contains(r.Message, "key of secrets is not kept") }) {
		t.Errorf("no row of the journal says it: %v", err)
	}
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "skerry-machine-key-2 tpm AAAA\n" {
		t.Errorf("the key's file has %q, %v", text, err)
	}
}
