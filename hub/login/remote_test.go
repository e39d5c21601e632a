package login_test

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"skerry/fleet"
	"skerry/fleet/syntax"
	"skerry/hub/login"
)

// keyServer serves a JWKS, and the description of an OIDC provider with it.
type keyServer struct {
	*httptest.Server
	answer  atomic.Pointer[string] // of /keys
	issuer  string                 // in the description
	fetches atomic.Int32           // of /keys
}

func newKeyServer(tb testing.TB) *keyServer {
	s := &keyServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		s.fetches.Add(1)
		answer := s.answer.Load()
		if answer == nil {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, *answer)
	})
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": s.issuer, "jwks_uri": s.URL + "/keys", "authorization_endpoint": s.URL + "/a", "token_endpoint": s.URL + "/t"})
	})
	mux.Handle("GET /elsewhere", http.RedirectHandler("http://192.0.2.1/keys?key=marked", http.StatusFound))
	s.Server = httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that fail
	s.StartTLS()
	tb.Cleanup(s.Close)
	s.issuer = s.URL
	return s
}

func (s *keyServer) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// serveKeys has the server answer with these keys from now on.
func (s *keyServer) serveKeys(keys map[string]*ecdsa.PrivateKey) {
	var set jose.JSONWebKeySet
	for id, key := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: "ES256", Use: "sig"})
	}
	b, _ := json.Marshal(set)
	s.serveText(string(b))
}

func (s *keyServer) serveText(text string) { s.answer.Store(&text) }

// remoteMethod is an auth method whose keys the server has.
func remoteMethod(s *keyServer) fleet.ACLAuthMethod {
	m := jwtMethod()
	m.Config.JWTValidationPubKeys, m.Config.JWKSURL, m.Config.JWKSCACert = nil, s.URL+"/keys", s.ca()
	return m
}

// Keys are fetched once, again for an unknown key, and seldom; a server that is gone does no harm for an hour.
func TestRemoteKeys(t *testing.T) {
	s, h := newKeyServer(t), newHarness(t)
	h.storeMethod(remoteMethod(s))
	h.storeRules("ci", [3]string{"", "management", ""})
	login1 := func(key *ecdsa.PrivateKey, id string) error {
		_, err := h.LoginJWT(t.Context(), "ci", signJWT(t, jose.ES256, key, id, h.goodClaims(nil)))
		return err
	}
	expect := func(what string, err error, part string, fetches int32) {
		t.Helper()
		if part == "" && err != nil || part != "" && (err == nil || !strings.Contains(err.Error(), part)) {
			t.Errorf("%s: %v, not %q", what, err, part)
		}
		if got := s.fetches.Load(); got != fetches {
			t.Errorf("%s: %d fetches, not %d", what, got, fetches)
		}
	}
	expect("broken", login1(ecKey(), "k1"), "it answers 500", 1)
	s.serveKeys(map[string]*ecdsa.PrivateKey{"k1": ecKey()})
	err := login1(ecKey(), "k1")
	expect("broken a moment ago", err, "it answers 500", 1)
	if fleet.CodeOf(err) != fleet.CodeUnavailable {
		t.Errorf("the code is %s", fleet.CodeOf(err))
	}
	h.now = h.now.Add(login.RetryInterval)
	expect("first", login1(ecKey(), "k1"), "", 2)
	expect("without an id", login1(ecKey(), ""), "", 2)
	h.now = h.now.Add(login.RetryInterval)
	expect("kept", login1(ecKey(), "k1"), "", 2)
	next := newECKey()
	s.serveKeys(map[string]*ecdsa.PrivateKey{"k2": next})
	expect("rotated", login1(next, "k2"), "", 3)
	expect("the old key", login1(ecKey(), "k1"), "none of the auth method's 0 keys", 3)
	expect("unknown keys at once", login1(next, "k9"), "none of the auth method's 0 keys", 3)
	expect("another key of that id", login1(ecKey(), "k2"), "none of the auth method's 1 keys", 3)
	s.answer.Store(nil)
	h.now = h.now.Add(login.FreshFor)
	expect("gone", login1(next, "k2"), "", 4)
	h.now = h.now.Add(login.KeptFor - login.FreshFor - time.Second)
	expect("gone for long", login1(next, "k2"), "", 5)
	h.now = h.now.Add(login.RetryInterval)
	expect("gone for too long", login1(next, "k2"), "it answers 500", 6)
}

func TestBadKeyServers(t *testing.T) {
	s := newKeyServer(t)
	plain := newKeyServer(t)
	plain.Close()
	symmetric := `{"keys":[{"kty":"oct","k":"c2VjcmV0"},{"kty":"new"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},7]}`
	private, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: ecKey(), KeyID: "k"}, {Key: ecKey().Public(), KeyID: "e", Use: "enc"}}})
	for name, tc := range map[string]struct {
		answer string
		change func(*fleet.ACLAuthMethodConfig)
		part   string
	}{
		"no JSON":         {"<html>", nil, "it is not a JWKS"},
		"no keys":         {"{}", nil, "no public key"},
		"other keys":      {symmetric, nil, "no public key that a signature could be checked with, among 4"},
		"private keys":    {string(private), nil, "no public key that a signature could be checked with, among 2"},
		"many keys":       {`{"keys":[` + strings.Repeat(`{},`, login.MaxKeys) + `{}]}`, nil, "it has 129 keys: at most 128"},
		"huge":            {strings.Repeat(" ", login.MaxAnswer) + "{}", nil, "request body too large"},
		"nested":          {strings.Repeat("[", 100), nil, "nested more than 32 deep"},
		"CA of others":    {"{}", func(c *fleet.ACLAuthMethodConfig) { c.JWKSCACert = "" }, "certificate"},
		"gone":            {"{}", func(c *fleet.ACLAuthMethodConfig) { c.JWKSURL = plain.URL + "/keys" }, "fetch the keys (JWKS) from " + plain.URL},
		"gone with a key": {"{}", func(c *fleet.ACLAuthMethodConfig) { c.JWKSURL = plain.URL + "/keys?key=marked" }, "fetch the keys (JWKS) from " + plain.URL + "/keys: Get "},
		"gone with a user": {"{}", func(c *fleet.ACLAuthMethodConfig) {
			c.JWKSURL = strings.Replace(plain.URL, "://", "://marked@", 1) + "/keys"
		}, "fetch the keys (JWKS) from https://…@"},
		"moved with a key": {"{}", func(c *fleet.ACLAuthMethodConfig) { c.JWKSURL = s.URL + "/elsewhere?key=marked" }, "plain HTTP"},
		"not found":        {"{}", func(c *fleet.ACLAuthMethodConfig) { c.JWKSURL = s.URL + "/none" }, "it answers 404"},
		"moved in clear":   {"{}", func(c *fleet.ACLAuthMethodConfig) { c.JWKSURL = s.URL + "/elsewhere" }, "plain HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			m := remoteMethod(s)
			if tc.change != nil {
				tc.change(m.Config)
			}
			s.serveText(tc.answer)
			h.storeMethod(m)
			h.storeRules("ci", [3]string{"", "management", ""})
			_, err := h.LoginJWT(t.Context(), "ci", signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(nil)))
			mustFailWith(t, err, fleet.CodeUnavailable, tc.part)
			if err != nil && strings.Contains(err.Error(), "marked") {
				t.Errorf("the error tells a secret: %v", err)
			}
			if err != nil && len(err.Error()) > 700 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// The caller's time bounds a login; the fetch goes on for the next one.
func TestSlowKeyServer(t *testing.T) {
	h := newHarness(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	s := newKeyServer(t)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: ecKey().Public()}}})
	})
	h.storeMethod(remoteMethod(s))
	h.storeRules("ci", [3]string{"", "management", ""})
	raw := signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(nil))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // the test waits for what it causes
		<-asked
		cancel()
	}()
	if _, err := h.LoginJWT(ctx, "ci", raw); err == nil {
		t.Error("a login whose time is over succeeds")
	}
	close(answer)
	if _, err := h.LoginJWT(t.Context(), "ci", raw); err != nil {
		t.Error(err)
	}
}

// A provider names its keys. It has to be the one of the URL.
func TestKeysOfProvider(t *testing.T) {
	s, h := newKeyServer(t), newHarness(t)
	s.serveKeys(map[string]*ecdsa.PrivateKey{"k1": ecKey()})
	m := jwtMethod()
	m.Config.JWTValidationPubKeys, m.Config.OIDCDiscoveryURL, m.Config.DiscoveryCaPem = nil, s.URL, []string{s.ca()}
	h.storeMethod(m)
	h.storeRules("ci", [3]string{"", "management", ""})
	raw := signJWT(t, jose.ES256, ecKey(), "k1", h.goodClaims(nil))
	s.issuer = "https://somebody.example.com"
	_, err := h.LoginJWT(t.Context(), "ci", raw)
	mustFailWith(t, err, fleet.CodeUnavailable, "somebody.example.com")
	s.issuer = s.URL
	h.now = h.now.Add(login.RetryInterval)
	if _, err := h.LoginJWT(t.Context(), "ci", raw); err != nil {
		t.Error(err)
	}
}

// FuzzJWT: whatever is parsed has an allowed algorithm, and claims of bounded depth.
func FuzzJWT(f *testing.F) {
	f.Add(signJWT(f, jose.ES256, ecKey(), "k", map[string]any{"sub": "a"}), []byte(`{"exp":1}`))
	f.Add(unsigned(`{"alg":"none"}`, `{}`), []byte(`[`))
	f.Add(unsigned(`{"alg":"ES256","alg":"none"}`, `{}`), []byte(`null`))
	f.Fuzz(func(t *testing.T, raw string, payload []byte) {
		if signed, err := login.ParseJWT(raw, []jose.SignatureAlgorithm{jose.ES256}); err == nil {
			if len(signed.Signatures) != 1 || signed.Signatures[0].Header.Algorithm != "ES256" {
				t.Errorf("%q: %+v", raw, signed.Signatures)
			}
		}
		if all, err := login.DecodeClaims(payload); err == nil && (all == nil || syntax.JSONDepth(payload) > 32) {
			t.Errorf("%q: %v", payload, all)
		}
	})
}

// FuzzKeys: whatever is read from a JWKS or a PEM text is public.
func FuzzKeys(f *testing.F) {
	public, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: ecKey().Public(), KeyID: "k"}}})
	private, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: ecKey(), KeyID: "k"}}})
	f.Add(public)
	f.Add(private)
	f.Add([]byte(publicPEM(ecKey())))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"))
	f.Fuzz(func(t *testing.T, body []byte) {
		keys, err := login.ParseKeys(body)
		if err == nil && len(keys) == 0 {
			t.Errorf("%q: neither keys nor an error", body)
		}
		for _, key := range keys {
			if !key.IsPublic() {
				t.Errorf("%q: %T", body, key.Key)
			}
		}
		_, _ = login.ParsePublicKey(string(body))
	})
}
