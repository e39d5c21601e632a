package hub_test

import (
	"bytes"
	"compress/flate"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	nomad "github.com/hashicorp/nomad/api"

	"skerry/hub"
	"skerry/hub/login/logintest"
)

// mustACLClient returns Nomad's client of a hub with the secret of a token.
func mustACLClient(tb testing.TB, h *runningHub, secret string) *nomad.Client {
	tb.Helper()
	c := mustNomadClient(tb, "http://"+h.HTTPAddr(), nomad.TLSConfig{})
	c.SetSecretID(secret)
	return c
}

// TestAccessControlAfterARestart: a hub that starts alone, and cannot apply its log, lets nobody in without a token.
func TestAccessControlAfterARestart(t *testing.T) {
	hubs := mustCluster(t, 2)
	if _, _, err := mustACLClient(t, hubs[0], "").ACLTokens().Bootstrap(nil); err != nil {
		t.Fatal(err)
	}
	for _, h := range hubs {
		waitUntil(t, "the hub has written down that access control is on", h.describeState, func() bool {
			_, err := os.Stat(filepath.Join(h.cfg.DataDir, "acl-enabled"))
			return err == nil
		})
	}
	for _, h := range hubs {
		h.stopHub()
	}
	again := mustStart(t, configOfRestart(t, hubs[1]))
	waitUntil(t, "the hub answers", again.describeState, func() bool {
		_, _, err := mustACLClient(t, again, "").Jobs().List(&nomad.QueryOptions{AllowStale: true})
		if err == nil {
			t.Fatal("everybody may list jobs")
		}
		return strings.Contains(err.Error(), "403")
	})
}

// configOfRestart returns the configuration of a hub that starts again where it was reached.
func configOfRestart(t *testing.T, h *runningHub) hub.Config {
	t.Helper()
	cfg := h.cfg
	cfg.Bootstrap, cfg.Join, cfg.Token, cfg.Packets, cfg.QUICPort = false, nil, "", nil, mustAddr(t, h.QUICAddr()).(*net.UDPAddr).Port
	return cfg
}

// TestAccessControlOfAHubThatJoins: a hub that has joined, and cannot get the log, serves nobody, also after a restart.
func TestAccessControlOfAHubThatJoins(t *testing.T) {
	first := mustCluster(t, 1)[0]
	if _, _, err := mustACLClient(t, first, "").ACLTokens().Bootstrap(nil); err != nil {
		t.Fatal(err)
	}
	cfg := config(t, "hub-2")
	cfg.Join, cfg.Token, cfg.Packets = []string{first.QUICAddr()}, first.HubJoinToken(), mustCuttableSocket(t)
	joining := mustOpen(t, cfg)
	first.stopHub()
	listFails := func(h *runningHub, with string) {
		t.Helper()
		waitUntil(t, "the hub answers "+with, h.describeState, func() bool {
			_, _, err := mustACLClient(t, h, "").Jobs().List(&nomad.QueryOptions{AllowStale: true})
			if err == nil {
				t.Fatal("everybody may list jobs")
			}
			return strings.Contains(err.Error(), with)
		})
	}
	joining.startHub()
	listFails(joining, "does not know yet")
	joining.stopHub()
	joining = mustStart(t, configOfRestart(t, joining))
	listFails(joining, "does not know yet")
	mustStart(t, configOfRestart(t, first))
	joining.mustBeReady()
	listFails(joining, "403")
	waitUntil(t, "the hub has written down what it knows", joining.describeState, func() bool {
		_, unknown := os.Stat(filepath.Join(cfg.DataDir, "acl-unknown"))
		_, enabled := os.Stat(filepath.Join(cfg.DataDir, "acl-enabled"))
		return errors.Is(unknown, fs.ErrNotExist) && enabled == nil
	})
}

// TestAccessControlOfThreeHubs: the bootstrap turns access control on at every hub. A token counts at once wherever it was
// made, gives the same rights at each hub, and counts nowhere when it is deleted. The state has no secret. The reset works
// on any hub, and after the leader has died.
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
	job := nomad.NewServiceJob("web", "web", "global", 50).AddTaskGroup(nomad.NewTaskGroup("web", 1).AddTask(nomad.NewTask("web", "sim")))
	for _, h := range hubs {
		if _, _, err := mustACLClient(t, h, made.SecretID).Jobs().List(nil); err != nil {
			t.Errorf("a new token at hub %s: %v", h.cfg.Name, err)
		}
		_, _, err := mustACLClient(t, h, made.SecretID).Jobs().Register(job, nil)
		if err == nil || !strings.Contains(err.Error(), "submit-job") {
			t.Errorf("a token that only reads registers a job at hub %s: %v", h.cfg.Name, err)
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

// loginCluster is a cluster of three hubs with access control, a policy read, an auth method of each type, and who vouches
// for people.
type loginCluster struct {
	hubs       []*runningHub
	leader     *runningHub
	management string // secret
	provider   *logintest.Provider
	jwt        string
}

func newLoginCluster(t *testing.T) *loginCluster {
	hubs := mustCluster(t, 3)
	c := &loginCluster{hubs: hubs, leader: mustLeader(t, hubs), provider: logintest.NewProvider(t, time.Now)}
	boot, _, err := mustACLClient(t, hubs[0], "").ACLTokens().Bootstrap(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.management = boot.SecretID
	m := mustACLClient(t, hubs[0], boot.SecretID)
	if _, err := m.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "read", Rules: `namespace "default" { policy = "read" }`}, nil); err != nil {
		t.Fatal(err)
	}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}})
	}))
	t.Cleanup(issuer.Close)
	for _, method := range []*nomad.ACLAuthMethod{
		{Name: "ci", Type: "JWT", Config: &nomad.ACLAuthMethodConfig{JWKSURL: issuer.URL, SigningAlgs: []string{"EdDSA"}}},
		{Name: "sso", Type: "OIDC", Config: &nomad.ACLAuthMethodConfig{
			OIDCDiscoveryURL: c.provider.URL, DiscoveryCaPem: []string{c.provider.CA()}, OIDCClientID: c.provider.ClientID, OIDCClientSecret: c.provider.ClientSecret, OIDCEnablePKCE: true,
			SigningAlgs: []string{"EdDSA"}, AllowedRedirectURIs: []string{"http://localhost:4649/oidc/callback"},
		}},
	} {
		method.TokenLocality, method.MaxTokenTTL = "global", time.Hour
		if _, _, err := m.ACLAuthMethods().Create(method, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.ACLBindingRules().Create(&nomad.ACLBindingRule{AuthMethod: method.Name, BindType: "policy", BindName: "read"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(fmt.Appendf(nil, `{"iat": %d}`, time.Now().Unix()))
	if err == nil {
		c.jwt, err = signed.CompactSerialize()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustLogIn logs in with the JWT, and at the provider: there it begins at one hub and ends at another. The tokens count at
// all hubs.
func (c *loginCluster) mustLogIn(t *testing.T, first, second *runningHub, all []*runningHub) {
	t.Helper()
	byJWT, _, err := mustACLClient(t, first, "").ACLAuth().Login(&nomad.ACLLoginRequest{AuthMethodName: "ci", LoginToken: c.jwt}, nil)
	if err != nil {
		t.Fatalf("log in by a JWT at hub %s: %v", first.cfg.Name, err)
	}
	const redirect, nonce = "http://localhost:4649/oidc/callback", "drawn by the client"
	begun, _, err := mustACLClient(t, first, "").ACLAuth().GetAuthURL(&nomad.ACLOIDCAuthURLRequest{AuthMethodName: "sso", RedirectURI: redirect, ClientNonce: nonce}, nil)
	if err != nil {
		t.Fatalf("begin a login at hub %s: %v", first.cfg.Name, err)
	}
	back := c.provider.LogIn(t, begun.AuthURL)
	byOIDC, _, err := mustACLClient(t, second, "").ACLAuth().CompleteAuth(&nomad.ACLOIDCCompleteAuthRequest{
		AuthMethodName: "sso", RedirectURI: redirect, ClientNonce: nonce, State: back.Get("state"), Code: back.Get("code"), Iss: back.Get("iss"),
	}, nil)
	if err != nil {
		t.Fatalf("complete a login at hub %s: %v", second.cfg.Name, err)
	}
	for _, h := range all {
		for _, secret := range []string{byJWT.SecretID, byOIDC.SecretID} {
			if _, _, err := mustACLClient(t, h, secret).Jobs().List(nil); err != nil {
				t.Errorf("the token of a login at hub %s: %v", h.cfg.Name, err)
			}
			if strings.Contains(h.describeState(), secret) {
				t.Errorf("the state of hub %s has the secret of a login", h.cfg.Name)
			}
		}
	}
}

// TestLoginAtThreeHubs: auth methods that were made at one hub let people in at all, also after the leader has died. No
// hub's state has the client secret.
func TestLoginAtThreeHubs(t *testing.T) {
	c := newLoginCluster(t)
	for i, h := range c.hubs {
		c.mustLogIn(t, h, c.hubs[(i+1)%3], c.hubs)
		if bytes.Contains(mustSnapshotAs(t, h, c.management), []byte(c.provider.ClientSecret)) || strings.Contains(h.describeState(), c.provider.ClientSecret) {
			t.Errorf("the state of hub %s has the client secret", h.cfg.Name)
		}
	}
	var rest []*runningHub
	for _, h := range c.hubs {
		if h != c.leader {
			rest = append(rest, h)
		}
	}
	c.leader.stopHub()
	waitUntil(t, "another hub leads", rest[0].describeState, func() bool { return leaderOf(rest) != nil })
	c.mustLogIn(t, rest[0], rest[1], rest)
}
