package transit_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/hub/transit"
	"skerry/hub/transit/transittest"
)

func mustClient(tb testing.TB, cfg transit.Config) *transit.Client {
	tb.Helper()
	c, err := transit.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// TestWrap: what was wrapped is unwrapped again, also after the key was rotated, until its version is not allowed any more.
func TestWrap(t *testing.T) {
	engine := transittest.MustStart(t)
	cfg := engine.Config()
	cfg.Namespace = "ns1"
	cfg.MountPath = "/transit/"
	c := mustClient(t, cfg)
	wrapped, err := c.Wrap(t.Context(), []byte("a state key"))
	if err != nil || !strings.HasPrefix(wrapped, "vault:v1:") || strings.Contains(wrapped, "a state key") {
		t.Fatal(wrapped, err)
	}
	engine.Rotate(1)
	if plain, err := c.Unwrap(t.Context(), wrapped); err != nil || string(plain) != "a state key" {
		t.Errorf("%q, %v", plain, err)
	}
	if got := engine.Requests(); !slices.Equal(got, []string{"encrypt ns1", "decrypt ns1"}) {
		t.Errorf("the requests are %q", got)
	}
	if newer, err := c.Wrap(t.Context(), []byte("x")); err != nil || !strings.HasPrefix(newer, "vault:v2:") {
		t.Error(newer, err)
	}
	engine.Rotate(2)
	_, err = c.Unwrap(t.Context(), wrapped)
	if fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), "too old") || !strings.Contains(fleet.AsError(err).Hint, "min_decryption_version") {
		t.Errorf("a version that is not allowed: %v", err)
	}
}

// TestRefusals: each answer of a server that cannot, or will not, is an error with its address, its reason, and what to do. The
// token is in none of them, and follows no redirect.
func TestRefusals(t *testing.T) {
	engine := transittest.MustStart(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a request to another server, with token %q", r.Header.Get("X-Vault-Token"))
	}))
	defer elsewhere.Close()
	answers := func(status int, text string) func(*transit.Config) {
		return func(cfg *transit.Config) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", elsewhere.URL)
				w.WriteHeader(status)
				_, _ = w.Write([]byte(text))
			}))
			t.Cleanup(s.Close)
			cfg.Address = s.URL
		}
	}
	wrongToken := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(wrongToken, []byte("marked-wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*transit.Config)
		code   fleet.Code
		says   string
		hint   string
	}{
		"no server":       {func(c *transit.Config) { c.Address = "http://127.0.0.1:9" }, fleet.CodeUnavailable, "127.0.0.1:9", "reach it"},
		"no token":        {func(c *transit.Config) { c.TokenFile = "/none/token" }, fleet.CodeUnavailable, "read the token", ""},
		"a wrong token":   {func(c *transit.Config) { c.TokenFile = wrongToken }, fleet.CodeForbidden, "permission denied", "capability update on transit/encrypt/skerry"},
		"another mount":   {func(c *transit.Config) { c.MountPath = "other" }, fleet.CodeNotFound, "no handler for route", "vault secrets enable -path=other"},
		"another key":     {func(c *transit.Config) { c.KeyName = "other" }, fleet.CodeInvalid, "encryption key not found", "transit/keys/other"},
		"sealed":          {func(*transit.Config) { engine.Seal(true) }, fleet.CodeUnavailable, "Vault is sealed", "unseal it"},
		"a standby":       {answers(http.StatusTemporaryRedirect, ""), fleet.CodeUnavailable, "307", "active server"},
		"a broken server": {answers(http.StatusInternalServerError, "x"), fleet.CodeUnavailable, "500", ""},
		"no JSON":         {answers(http.StatusOK, "<html>"), fleet.CodeInvalid, "read its answer", ""},
		"no data":         {answers(http.StatusOK, `{"data":{}}`), fleet.CodeInvalid, "no ", ""},
		"other data":      {answers(http.StatusOK, `{"data":{"ciphertext":"x","plaintext":"!"}}`), fleet.CodeInvalid, "no ", ""},
		"a huge answer":   {answers(http.StatusOK, strings.Repeat(" ", 1<<20+1)), fleet.CodeInvalid, "more than", ""},
	} {
		cfg := engine.Config()
		tc.change(&cfg)
		c := mustClient(t, cfg)
		_, wrapErr := c.Wrap(t.Context(), []byte("key"))
		_, unwrapErr := c.Unwrap(t.Context(), "vault:v1:AAAA")
		for _, err := range []error{wrapErr, unwrapErr} {
			e := fleet.AsError(err)
			if e == nil || e.Code != tc.code || !strings.Contains(e.Message, tc.says) || !strings.Contains(e.Hint, tc.hint) || !strings.Contains(e.Message, cfg.Address) {
				t.Errorf("%s: %+v", name, e)
			}
			if strings.Contains(err.Error(), "marked") {
				t.Errorf("%s: the token is shown: %v", name, err)
			}
		}
		engine.Seal(false)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mustClient(t, engine.Config()).Wrap(ctx, nil); fleet.CodeOf(err) != fleet.CodeUnavailable {
		t.Errorf("a request that ended: %v", err)
	}
}

// TestHTTPS: the certificate of the server has to be of an authority of the file.
func TestHTTPS(t *testing.T) {
	engine := transittest.MustStart(t)
	secure := httptest.NewTLSServer(engine)
	defer secure.Close()
	cfg := engine.Config()
	cfg.Address = secure.URL
	if _, err := mustClient(t, cfg).Wrap(t.Context(), []byte("key")); fleet.CodeOf(err) != fleet.CodeUnavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that nobody named: %v", err)
	}
	cfg.CACert = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(cfg.CACert, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mustClient(t, cfg).Wrap(t.Context(), []byte("key")); err != nil {
		t.Error(err)
	}
}

// TestConfig: what is missing, or would leave the path of the engine, is refused before a request.
func TestConfig(t *testing.T) {
	good := transit.Config{Address: "https://vault.example.com:8200/", KeyName: "skerry", TokenFile: "/t"}
	mustClient(t, good)
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*transit.Config){
		"no address":      func(c *transit.Config) { c.Address = "" },
		"no key":          func(c *transit.Config) { c.KeyName = "" },
		"no token":        func(c *transit.Config) { c.TokenFile = "" },
		"no URL":          func(c *transit.Config) { c.Address = "vault:8200" },
		"a user":          func(c *transit.Config) { c.Address = "https://a:b@vault" },
		"not encrypted":   func(c *transit.Config) { c.Address = "http://vault.example.com" },
		"a path as a key": func(c *transit.Config) { c.KeyName = "a/b" },
		"dots":            func(c *transit.Config) { c.KeyName = ".." },
		"a query":         func(c *transit.Config) { c.KeyName = "a?b" },
		"a mount above":   func(c *transit.Config) { c.MountPath = "transit/../sys" },
		"no authorities":  func(c *transit.Config) { c.CACert = "/none" },
		"an empty file":   func(c *transit.Config) { c.CACert = empty },
	} {
		cfg := good
		change(&cfg)
		if _, err := transit.New(cfg); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add([]byte(`{"data":{"ciphertext":"vault:v1:AAAA"}}`))
	f.Add([]byte(`{"data":{"plaintext":"AAAA"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if a, err := transit.DecodeAnswer(content); err != nil && (a.Ciphertext != "" || a.Plaintext != "") {
			t.Error(a, err)
		}
	})
}
