package vault_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/edge/logins"
	"skerry/edge/vault"
	"skerry/edge/vault/vaulttest"
	"skerry/fleet"
	"skerry/internal/remoteapi"
)

// TestAddresses: tokens cross no network in clear.
func TestAddresses(t *testing.T) {
	for _, good := range []string{"https://vault.example.com", "https://192.0.2.1:8200/", "http://127.0.0.1:8200", "http://localhost:8200", "http://[::1]:8200", "unix:///run/vault.sock"} {
		if _, err := vault.NewClient(vault.ClientConfig{Address: good}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"vault:8200", "unix://", "http://vault.example.com:8200", "http://127.0.0.2.example.com", "https://u:p@vault", "https://vault/x", "https://vault?x=y", "ftp://vault", ""} {
		if _, err := vault.NewClient(vault.ClientConfig{Address: bad}); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []vault.ClientConfig{{CAFile: file}, {CAFile: file + ".none"}, {CertFile: file, KeyFile: file}} {
		cfg.Address = "https://vault"
		if _, err := vault.NewClient(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// TestAttributes: they have Nomad's names, and stay while Vault is away.
func TestAttributes(t *testing.T) {
	server := vaulttest.New(nil)
	client, err := vault.NewClient(vault.ClientConfig{Address: "https://vault", Transport: server})
	if err != nil {
		t.Fatal(err)
	}
	server.FailNetwork(errors.New("away"))
	if got := client.Attributes(t.Context()); len(got) != 0 {
		t.Errorf("of a Vault that never answered: %v", got)
	}
	for _, away := range []error{nil, errors.New("away")} {
		server.FailNetwork(away)
		got := client.Attributes(t.Context())
		if got["vault.version"] != "1.18.3" || got["vault.accessible"] != "true" || got["vault.cluster_id"] != "c-1" || got["vault.cluster_name"] != "vault-cluster" || len(got) != 4 {
			t.Errorf("away %v: %v", away, got)
		}
	}
}

// TestForeignAnswers: what is no answer of Vault is as one that is away, and a redirect gets no token.
func TestForeignAnswers(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
	}{{200, "<html>"}, {200, `{"auth": null}`}, {200, `{"auth": {"client_token": ""}}`}, {200, `{"auth": {"client_token": "a\nb"}}`}, {307, ""}, {502, "<html>bad gateway</html>"}} {
		reached := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reached++
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tc.status)
			_, _ = w.Write([]byte(tc.body))
		}))
		client, err := vault.NewClient(vault.ClientConfig{Address: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.LogIn(t.Context(), logins.Task{Role: "r"}, "marked.jwt"); err == nil || remoteapi.IsRefused(err) || reached != 1 || strings.Contains(err.Error(), "marked") || strings.Contains(err.Error(), "html") {
			t.Errorf("%d %s: %v, %d requests", tc.status, tc.body, err, reached)
		}
		server.Close()
	}
}
