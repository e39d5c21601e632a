package pki_test

import (
	"bytes"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/state"
)

func TestSealedSecretsOpenByTheirKeyAlone(t *testing.T) {
	clear := *mustRegistry(t).cluster
	key, other := pki.NewStateKey(), pki.NewStateKey()
	seal, err := key.Seal(clear)
	if err != nil {
		t.Fatal(err)
	}
	sealed := clear.WithSeal(seal)
	if sealed.CAKey != nil || sealed.GossipKey != nil || bytes.Contains(sealed.Sealed, clear.GossipKey) || sealed.SealKey != key.ID() {
		t.Fatalf("sealed: %+v", sealed)
	}
	opened, err := pki.OpenCluster(sealed, []pki.StateKey{other, key})
	if err != nil || !bytes.Equal(opened.CAKey, clear.CAKey) || !bytes.Equal(opened.GossipKey, clear.GossipKey) {
		t.Fatalf("opened: %v", err)
	}
	if _, err := pki.NewAuthority(opened); err != nil {
		t.Fatal(err)
	}
	if again, err := pki.OpenCluster(clear, nil); err != nil || !bytes.Equal(again.CAKey, clear.CAKey) {
		t.Fatalf("what an older release left in clear: %v", err)
	}
	for name, try := range map[string]struct {
		change func(*state.Cluster)
		keys   []pki.StateKey
		code   fleet.Code
		says   string
	}{
		"no key":          {func(*state.Cluster) {}, nil, fleet.CodeUnavailable, "state key " + key.ID() + ", and this hub has none"},
		"another key":     {func(*state.Cluster) {}, []pki.StateKey{other}, fleet.CodeUnavailable, "this hub has " + other.ID()},
		"changed":         {func(c *state.Cluster) { c.Sealed[20] ^= 1 }, []pki.StateKey{key}, fleet.CodeInvalid, "changed"},
		"cut short":       {func(c *state.Cluster) { c.Sealed = c.Sealed[:7] }, []pki.StateKey{key}, fleet.CodeInvalid, "cut short"},
		"another cluster": {func(c *state.Cluster) { c.ID = "x" }, []pki.StateKey{key}, fleet.CodeInvalid, "another cluster"},
		"a newer version": {func(c *state.Cluster) { c.Sealed[0] = 2 }, []pki.StateKey{key}, fleet.CodeVersion, "version 2"},
	} {
		c := sealed
		c.Sealed = bytes.Clone(sealed.Sealed)
		try.change(&c)
		_, err := pki.OpenCluster(c, try.keys)
		if e := fleet.AsError(err); e == nil || e.Code != try.code || !strings.Contains(e.Message, try.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Bytes that were sealed once can be opened for ever.
func TestSealedGolden(t *testing.T) {
	const sealed = "01edef220e87f77ad66831f1f6eede6acad2631b559acf4b00a2bc43a49f733032d414098059afd123fde6bd"
	raw, err := hex.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	var key pki.StateKey
	for i := range key {
		key[i] = byte(i)
	}
	if got, want := key.ID(), "dc61fc0d1e2759bd"; got != want {
		t.Fatalf("the key is called %s, not %s", got, want)
	}
	opened, err := pki.OpenCluster(state.Cluster{ID: "c1", CACert: []byte("a certificate"), Sealed: raw, SealKey: key.ID()}, []pki.StateKey{key})
	if err != nil || string(opened.CAKey) != "a key" || string(opened.GossipKey) != "gossip" {
		t.Fatalf("%q, %q, %v", opened.CAKey, opened.GossipKey, err)
	}
}

// FuzzOpenCluster opens any key file and any sealed bytes: it gets the sealed cluster, or a refusal.
func FuzzOpenCluster(f *testing.F) {
	key := pki.NewStateKey()
	seal, err := key.Seal(state.Cluster{ID: "c1", CAKey: []byte("a key"), GossipKey: []byte("gossip")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("skerry-state-key-1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"), seal.Sealed)
	f.Add([]byte("skerry-state-key-2 x\n"), seal.Sealed[:13])
	f.Add([]byte{}, []byte{1})
	f.Add([]byte("skerry-state-key-2 transit 00 vault:v1:AAAA\n"), []byte{1})
	f.Fuzz(func(t *testing.T, file, sealed []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "state-key"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := pki.OpenStateKeys(pki.StateKeysConfig{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil && (fleet.CodeOf(err) != fleet.CodeInvalid || fleet.AsError(err).Hint == "") {
			t.Fatal(err)
		}
		if err == nil && len(keys.Known()) > 16 {
			t.Fatal("too many keys")
		}
		opened, err := pki.OpenCluster(state.Cluster{ID: "c1", Sealed: sealed, SealKey: key.ID()}, []pki.StateKey{key})
		if err == nil && len(sealed) > 0 && string(opened.CAKey) != "a key" {
			t.Fatalf("opened as %q", opened.CAKey)
		}
	})
}
