package hub_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/api"
	"skerry/hub"
	"skerry/hub/members"
	"skerry/hub/pki"
	"skerry/hub/state"
)

// mustStoreSecrets turns access control on, and has the state keep a secret of each kind. It returns a client that may do
// everything, and its token.
func mustStoreSecrets(t *testing.T, h *runningHub) (*nomad.Client, string) {
	t.Helper()
	c := mustNomadClient(t, "http://"+h.HTTPAddr(), nomad.TLSConfig{})
	token, _, err := c.ACLTokens().Bootstrap(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetSecretID(token.SecretID)
	if _, _, err := c.Variables().Create(&nomad.Variable{Path: "app/db", Items: nomad.VariableItems{"password": "p"}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.ACLAuthMethods().Create(&nomad.ACLAuthMethod{
		Name: "sso", Type: nomad.ACLAuthMethodTypeOIDC, TokenLocality: nomad.ACLAuthMethodTokenLocalityLocal, MaxTokenTTL: time.Hour,
		Config: &nomad.ACLAuthMethodConfig{
			OIDCDiscoveryURL: "https://sso.example.com", OIDCClientID: "skerry", OIDCClientSecret: "client-secret", AllowedRedirectURIs: []string{"http://127.0.0.1:4649/oidc/callback"},
		},
	}, nil); err != nil {
		t.Fatal(err)
	}
	var begun api.RotatedCA
	if _, err := c.Raw().Write("/v1/operator/ca/rotate", api.RotateCARequest{}, &begun, nil); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the state has a secret of each kind", h.describeState, func() bool {
		kinds := map[string]bool{}
		for secret := range h.State().View().WrappedSecrets() {
			kinds[secret.Kind] = true
		}
		return len(kinds) == 4 && h.State().View().CAs().Newest().SettledAt != 0
	})
	return c, token.SecretID
}

// encryptedWith reports whether all secrets in a state are encrypted with a state key.
func encryptedWith(v *state.View, id string) bool {
	cluster, ok := v.Cluster()
	for _, by := range v.WrappedSecrets() {
		ok = ok && by == id
	}
	return ok && cluster.SealKey == id
}

// storedKeys returns the names of the state keys in the file of a hub.
func storedKeys(tb testing.TB, cfg hub.Config) (ids []string) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(cfg.DataDir, "identity", "state-key"))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(strings.TrimPrefix(line, "skerry-state-key-1 ")))
		key, bad := pki.ParseStateKey(b)
		if err != nil || bad != nil {
			tb.Fatal(err, bad)
		}
		ids = append(ids, key.ID())
	}
	return ids
}

// TestStateKeyIsReplaced: the state key is replaced while a hub is off. Everything is encrypted with the new key. The hub gets
// it when it comes back, and only then the one before is erased, on all hubs. A snapshot from before can be restored.
func TestStateKeyIsReplaced(t *testing.T) {
	hubs := mustClusterWith(t, 3, func(cfg *hub.Config) { cfg.OIDCIssuer = "https://hub.example.com" })
	admin, token := mustStoreSecrets(t, hubs[0])
	first, _ := hubs[0].State().View().Cluster()
	gossip := mustReadGossipKey(t, hubs[0])
	snapshot, err := admin.Operator().Snapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := io.ReadAll(snapshot)
	if err != nil || snapshot.Close() != nil {
		t.Fatal(err)
	}
	off := hubs[2]
	off.awaitAuthority()
	port := mustAddr(t, off.QUICAddr()).(*net.UDPAddr).Port
	off.stopHub()
	waitUntil(t, "a hub leads", hubs[0].describeState, func() bool { return leaderOf(hubs[:2]) != nil })

	var begun api.RotatedStateKey
	waitUntil(t, "the rotation begins", hubs[0].describeState, func() bool {
		_, err := admin.Raw().Write("/v1/operator/state-key/rotate", api.RotateStateKeyRequest{Keep: "0s"}, &begun, nil)
		return err == nil
	})
	for _, h := range hubs[:2] {
		waitUntil(t, "all is encrypted with the new key", h.describeState, func() bool { return encryptedWith(h.State().View(), begun.ID) })
		if keys := h.State().View().StateKeys(); len(keys) != 2 || keys[0].ID != first.SealKey || keys[0].ForgottenAt != 0 || len(keys[1].Held) != 2 {
			t.Errorf("while a hub is off: %+v, %+v", keys[0], keys[1])
		}
		if ids := storedKeys(t, h.cfg); len(ids) != 2 {
			t.Errorf("while a hub is off, %s has %v", h.cfg.Name, ids)
		}
	}

	cfg := off.cfg
	cfg.Join, cfg.Token, cfg.Packets, cfg.QUICPort = nil, "", nil, port
	hubs[2] = mustStart(t, cfg)
	hubs[2].mustBeReady()
	for _, h := range hubs {
		waitUntil(t, "the key before is erased", h.describeState, func() bool {
			ids := storedKeys(t, h.cfg)
			return len(ids) == 1 && ids[0] == begun.ID
		})
	}
	mustUseNextGossipKey(t, hubs, token, gossip)
	reads := func(h *runningHub) func() bool {
		c := mustNomadClient(t, "http://"+h.HTTPAddr(), nomad.TLSConfig{})
		c.SetSecretID(token)
		return func() bool {
			read, _, err := c.Variables().Read("app/db", nil)
			return err == nil && read.Items["password"] == "p"
		}
	}
	for _, h := range hubs {
		waitUntil(t, "the variable is read", h.describeState, reads(h))
	}

	old := state.New()
	if err := old.Restore(bytes.NewReader(before)); err != nil || !encryptedWith(old.View(), first.SealKey) {
		t.Fatalf("the snapshot is of the key before: %v", err)
	}
	if _, err := admin.Operator().SnapshotRestore(bytes.NewReader(before), nil); err != nil {
		t.Fatal(err)
	}
	for _, h := range hubs {
		waitUntil(t, "the variable is read after the restore", h.describeState, reads(h))
		if !encryptedWith(h.State().View(), begun.ID) {
			t.Errorf("after the restore %s has secrets with another key", h.cfg.Name)
		}
	}
	mustAuditRotation(t, hubs[0], token)
}

// mustReadGossipKey returns the gossip key with which a hub would start.
func mustReadGossipKey(tb testing.TB, h *runningHub) []byte {
	tb.Helper()
	key, err := os.ReadFile(filepath.Join(h.cfg.DataDir, "identity", "gossip-key"))
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// mustUseNextGossipKey checks that a machine with the gossip key from before the rotation cannot talk to any hub, and that the
// hubs list each other as alive.
func mustUseNextGossipKey(t *testing.T, hubs []*runningHub, token string, former []byte) {
	t.Helper()
	stranger, err := members.Open(members.Config{
		Self: members.Member{ID: "stranger", Region: "global"}, Bind: "127.0.0.1", Key: former, Seeds: func() []string { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for _, h := range hubs {
		waitUntil(t, "the next gossip key is stored", h.describeState, func() bool { return !bytes.Equal(mustReadGossipKey(t, h), former) })
		waitUntil(t, "the former gossip key is refused", h.describeState, func() bool {
			return stranger.Join(t.Context(), []string{h.GossipAddr()}) != nil
		})
		client := mustNomadClient(t, "http://"+h.HTTPAddr(), nomad.TLSConfig{})
		client.SetSecretID(token)
		waitUntil(t, "the hubs see each other", h.describeState, func() bool {
			list, err := client.Agent().Members()
			if err != nil {
				return false
			}
			alive := slices.DeleteFunc(list.Members, func(m *nomad.AgentMember) bool { return m.Status != "alive" || m.Name == "stranger" })
			return len(alive) == len(hubs)
		})
	}
}

// mustAuditRotation checks that the audit of a hub says who rotated the state key.
func mustAuditRotation(t *testing.T, h *runningHub, token string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.HTTPAddr()+"/v1/operator/audit", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Nomad-Token", token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "/v1/operator/state-key/rotate") && strings.Contains(line, `"Accessor"`) {
			return
		}
	}
	t.Errorf("the audit has no line about it, %v", err)
}
