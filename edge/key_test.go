package edge_test

import (
	"os"
	"path/filepath"
	"testing"

	"skerry/edge"
	"skerry/fleet"
)

// The hash of an edge's key stays the same, from before its first start on.
func TestKeyHash(t *testing.T) {
	dir := t.TempDir()
	first, err := edge.KeyHash(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "identity", "key.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key's file: %v, %v", info, err)
	}
	if again, err := edge.KeyHash(dir); err != nil || again != first {
		t.Fatalf("%x, and then %x, %v", first, again, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "identity", "key.pem"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := edge.KeyHash(dir); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Fatalf("a damaged key: %v", err)
	}
	hub := t.TempDir()
	if err := os.MkdirAll(filepath.Join(hub, "identity"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hub, "identity", "hub.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := edge.KeyHash(hub); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Fatalf("in a hub's data directory: %v", err)
	}
}
