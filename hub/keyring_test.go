package hub_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub"
	"skerry/hub/transit"
	"skerry/hub/transit/transittest"
)

// mustHaveKey reads the file of a hub's state keys, which has them wrapped or in clear.
func mustHaveKey(tb testing.TB, cfg hub.Config, wrapped bool) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(cfg.DataDir, "identity", "state-key"))
	if err != nil || strings.Contains(string(text), "skerry-state-key-1 ") == wrapped || strings.Contains(string(text), "skerry-state-key-2 transit ") != wrapped {
		tb.Errorf("the state keys of %s are %q, %v", cfg.Name, text, err)
	}
	return string(text)
}

// mustStoreVariable stores a variable, and readsVariable reports whether a hub decrypts it.
func mustStoreVariable(tb testing.TB, h *runningHub) {
	tb.Helper()
	c := mustNomadClient(tb, "http://"+h.HTTPAddr(), nomad.TLSConfig{})
	if _, _, err := c.Variables().Create(&nomad.Variable{Path: "app/db", Items: nomad.VariableItems{"password": "p"}}, nil); err != nil {
		tb.Fatal(err)
	}
}

func readVariable(tb testing.TB, h *runningHub) error {
	tb.Helper()
	_, _, err := mustNomadClient(tb, "http://"+h.HTTPAddr(), nomad.TLSConfig{}).Variables().Read("app/db", nil)
	return err
}

// TestHubsThatMoveToTransit: hubs with the state key in a file and hubs that have it wrapped by transit are one cluster. A hub
// moves at its next start. One that starts while the server of transit is away gets the key from another hub.
func TestHubsThatMoveToTransit(t *testing.T) {
	engine := transittest.MustStart(t)
	hubs := mustCluster(t, 2)
	mustStoreVariable(t, hubs[0])
	second := hubs[1]
	second.awaitAuthority()
	mustHaveKey(t, second.cfg, false)
	cfg := second.cfg
	// At the same address: raft has a race of its own where a hub moves.
	cfg.Join, cfg.Token, cfg.Packets, cfg.QUICPort = nil, "", nil, mustAddr(t, second.QUICAddr()).(*net.UDPAddr).Port
	cfg.Keyring, cfg.KeyringTransit = "transit", engine.Config()
	for _, away := range []bool{false, true} {
		second.stopHub()
		engine.Seal(away)
		second = mustStart(t, cfg)
		second.mustBeReady()
		waitUntil(t, "the second hub reads the variable", second.describeState, func() bool { return readVariable(t, second) == nil })
		mustHaveKey(t, cfg, true)
	}
	engine.Seal(false)
	third := config(t, "hub-3")
	third.Join, third.Token = []string{hubs[0].QUICAddr()}, mustHubToken(t, hubs[0])
	third.Keyring, third.KeyringTransit = "transit", engine.Config()
	joined := mustStart(t, third)
	joined.mustBeReady()
	mustHaveKey(t, third, true)
	waitUntil(t, "the third hub reads the variable", joined.describeState, func() bool { return readVariable(t, joined) == nil })
}

// mustHubToken reads the token that the first hub wrote for others.
func mustHubToken(tb testing.TB, first *runningHub) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(first.cfg.DataDir, "hub-join-token"))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// TestTransitIsAway: a cluster is not made without the server of transit. Later its hub runs without it, also through a rotation, and
// starts without it: then it cannot decrypt, says why, and can again as soon as it starts with the server. A hub goes back to the file.
func TestTransitIsAway(t *testing.T) {
	engine := transittest.MustStart(t)
	cfg := config(t, "hub-1")
	cfg.Bootstrap, cfg.Keyring, cfg.KeyringTransit = true, "transit", engine.Config()
	engine.Seal(true)
	mustRefuse(t, cfg, fleet.CodeUnavailable, "make a cluster", "Vault is sealed", "unseal it")
	engine.Seal(false)
	first := mustStart(t, cfg)
	first.mustBeReady()
	mustStoreVariable(t, first)
	mustHaveKey(t, cfg, true)
	engine.Seal(true)
	engine.Requests()
	if _, _, err := mustNomadClient(t, "http://"+first.HTTPAddr(), nomad.TLSConfig{}).Keyring().Rotate(&nomad.KeyringRotateOptions{Full: true}, nil); err != nil {
		t.Errorf("rotate while it is away: %v", err)
	}
	if err := readVariable(t, first); err != nil {
		t.Errorf("read while it is away: %v", err)
	}
	if asked := engine.Requests(); len(asked) > 0 {
		t.Errorf("it was asked for %q", asked)
	}
	first.stopHub()
	alone := mustStart(t, cfg)
	alone.mustBeReady()
	if err := readVariable(t, alone); err == nil || !strings.Contains(err.Error(), "Vault is sealed") || !strings.Contains(err.Error(), "tries again every minute") {
		t.Errorf("after a start without it: %v", err)
	}
	alone.stopHub()
	engine.Seal(false)
	engine.Rotate(1)
	again := mustStart(t, cfg)
	again.mustBeReady()
	if err := readVariable(t, again); err != nil {
		t.Errorf("after a start with it: %v", err)
	}
	if text := mustHaveKey(t, cfg, true); !strings.Contains(text, "vault:v2:") {
		t.Errorf("the key is not wrapped anew: %q", text)
	}
	again.stopHub()
	cfg.Keyring = "file"
	back := mustStart(t, cfg)
	back.mustBeReady()
	if err := readVariable(t, back); err != nil {
		t.Errorf("with the file: %v", err)
	}
	mustHaveKey(t, cfg, false)
	back.stopHub()
	cfg.KeyringTransit = transit.Config{}
	clear := mustStart(t, cfg)
	clear.mustBeReady()
	if err := readVariable(t, clear); err != nil {
		t.Errorf("with the file alone: %v", err)
	}
}

// TestSnapshotWithTransit: a hub that lost its file refuses a snapshot with variables, and restores it with the file of another hub,
// or of a backup, that has the key wrapped.
func TestSnapshotWithTransit(t *testing.T) {
	engine := transittest.MustStart(t)
	cfg := config(t, "hub-1")
	cfg.Bootstrap, cfg.Keyring, cfg.KeyringTransit = true, "transit", engine.Config()
	old := mustStart(t, cfg)
	old.mustBeReady()
	mustStoreVariable(t, old)
	res, err := http.Get("http://" + old.HTTPAddr() + "/v1/operator/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	snapshot, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, err)
	}
	restore := func(h *runningHub) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+h.HTTPAddr()+"/v1/operator/snapshot", bytes.NewReader(snapshot))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.Status + ": " + string(text)
	}
	backup := mustHaveKey(t, cfg, true)
	old.stopHub()
	path := filepath.Join(cfg.DataDir, "identity", "state-key")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	lost := mustStart(t, cfg)
	lost.mustBeReady()
	if said := restore(lost); strings.HasPrefix(said, "200") || !strings.Contains(said, "app/db") || !strings.Contains(said, "state key") {
		t.Errorf("without the key: %s", said)
	}
	lost.stopHub()
	mustWrite(t, path, backup)
	again := mustStart(t, cfg)
	again.mustBeReady()
	if said := restore(again); !strings.HasPrefix(said, "200") {
		t.Fatalf("with the key: %s", said)
	}
	if err := readVariable(t, again); err != nil {
		t.Error(err)
	}
}

// TestKeyringIsChecked: ways that this release does not have are refused by name, and transit without its server.
func TestKeyringIsChecked(t *testing.T) {
	for way, says := range map[string]string{
		"awskms": "--keyring transit", "azurekeyvault": "--keyring transit", "gcpckms": "--keyring transit", "magic": "the ways are file and transit",
		"transit": "--keyring-transit-address",
	} {
		cfg := config(t, "hub-1")
		cfg.Bootstrap, cfg.Keyring = true, way
		_, err := hub.Open(t.Context(), cfg)
		if code := fleet.CodeOf(err); code != fleet.CodeUnsupported && code != fleet.CodeInvalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", way, err)
		}
	}
	cfg := config(t, "hub-1")
	cfg.Bootstrap, cfg.KeyringTransit = true, transit.Config{Address: "https://vault"}
	if _, err := hub.Open(t.Context(), cfg); fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Errorf("half a server: %v", err)
	}
}
