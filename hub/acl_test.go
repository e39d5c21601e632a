package hub_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"
)

// mustACLClient returns Nomad's client of a hub with the secret of a token.
func mustACLClient(tb testing.TB, h *runningHub, secret string) *nomad.Client {
	tb.Helper()
	c := mustNomadClient(tb, "http://"+h.HTTPAddr(), nomad.TLSConfig{})
	c.SetSecretID(secret)
	return c
}

// TestAccessControlOfThreeHubs: the bootstrap turns access control on at every hub, a token counts at once wherever it was
// made, and a deleted one nowhere. The state has no secret. The reset works on any hub, and after the leader has died.
func TestAccessControlOfThreeHubs(t *testing.T) {
	hubs := mustCluster(t, 3)
	leader := mustLeader(t, hubs)
	var rest []*runningHub
	for _, h := range hubs {
		if h != leader {
			rest = append(rest, h)
		}
	}
	boot, _, err := mustACLClient(t, rest[0], "").ACLTokens().Bootstrap(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hubs {
		waitUntil(t, "nobody is served without a token", h.describeState, func() bool {
			_, _, err := mustACLClient(t, h, "").Jobs().List(nil)
			return err != nil && strings.Contains(err.Error(), "403")
		})
		if _, _, err := mustACLClient(t, h, boot.SecretID).Jobs().List(nil); err != nil {
			t.Errorf("the management token at hub %s: %v", h.cfg.Name, err)
		}
	}
	management := mustACLClient(t, rest[0], boot.SecretID)
	if _, err := management.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "read", Rules: `namespace "default" { policy = "read" }`}, nil); err != nil {
		t.Fatal(err)
	}
	made, _, err := management.ACLTokens().Create(&nomad.ACLToken{Type: "client", Policies: []string{"read"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hubs {
		if _, _, err := mustACLClient(t, h, made.SecretID).Jobs().List(nil); err != nil {
			t.Errorf("a new token at hub %s: %v", h.cfg.Name, err)
		}
		snapshot := mustSnapshotAs(t, h, boot.SecretID)
		if bytes.Contains(snapshot, []byte(made.SecretID)) || strings.Contains(h.describeState(), made.SecretID) || strings.Contains(h.describeState(), boot.SecretID) {
			t.Errorf("the state of hub %s has a secret", h.cfg.Name)
		}
	}
	if _, err := management.ACLTokens().Delete(made.AccessorID, nil); err != nil {
		t.Fatal(err)
	}
	leader.stopHub()
	waitUntil(t, "another hub leads", rest[0].describeState, func() bool { return leaderOf(rest) != nil })
	for _, h := range rest {
		waitUntil(t, "the deleted token is refused", h.describeState, func() bool {
			_, _, err := mustACLClient(t, h, made.SecretID).Jobs().List(nil)
			return err != nil && strings.Contains(err.Error(), "ACL token not found")
		})
	}
	reset := filepath.Join(rest[1].cfg.DataDir, "acl-bootstrap-reset")
	if err := os.WriteFile(reset, fmt.Append(nil, boot.CreateIndex), 0o600); err != nil {
		t.Fatal(err)
	}
	again, _, err := mustACLClient(t, rest[1], "").ACLTokens().Bootstrap(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := mustACLClient(t, rest[0], again.SecretID).ACLTokens().List(nil); err != nil {
		t.Errorf("the token of the second bootstrap: %v", err)
	}
}

// mustSnapshotAs asks a hub for a snapshot with a token.
func mustSnapshotAs(tb testing.TB, h *runningHub, secret string) []byte {
	tb.Helper()
	body, err := mustACLClient(tb, h, secret).Operator().Snapshot(nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer body.Close()
	file, err := io.ReadAll(body)
	if err != nil {
		tb.Fatal(err)
	}
	inflated, err := io.ReadAll(flate.NewReader(bytes.NewReader(file[9:]))) // behind the header
	if err != nil || !bytes.Contains(inflated, []byte("Bootstrap Token")) {
		tb.Fatalf("the snapshot has not the tokens: %v", err)
	}
	return inflated
}
