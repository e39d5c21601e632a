// Package transittest has a transit secrets engine in memory, for tests: it answers the requests that package transit sends as
// Vault's HTTP API is documented, and fails as Vault does. It is no server of Vault.
package transittest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"skerry/hub/transit"
	"skerry/internal/sealing"
)

// KeyName and Token are the key that the engine has, and the token that may use it.
const (
	KeyName = "skerry"
	Token   = "hvs.marked-transit-token"
)

// Engine is a transit engine. Its methods may be called from any goroutine.
type Engine struct {
	*httptest.Server
	tokenFile string

	mu       sync.Mutex
	versions []sealing.Key
	minimum  int // min_decryption_version
	sealed   bool
	requests []string // operation, namespace
}

// MustStart serves an engine until the test ends.
func MustStart(tb testing.TB) *Engine {
	tb.Helper()
	e := &Engine{minimum: 1, tokenFile: filepath.Join(tb.TempDir(), "token")}
	if err := os.WriteFile(e.tokenFile, []byte(Token+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	e.Rotate(1)
	e.Server = httptest.NewServer(e)
	tb.Cleanup(e.Close)
	return e
}

// Config returns the configuration of a client.
func (e *Engine) Config() transit.Config {
	return transit.Config{Address: e.URL, KeyName: KeyName, TokenFile: e.tokenFile}
}

// Rotate adds a version of the key, and sets the oldest one that decrypts.
func (e *Engine) Rotate(minimum int) {
	key, err := sealing.NewKey(sealing.DrawKey())
	if err != nil {
		panic(fmt.Sprintf("make a key: %v", err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.versions, e.minimum = append(e.versions, key), minimum
}

// Seal has the engine answer as a sealed Vault does, or not any more.
func (e *Engine) Seal(sealed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sealed = sealed
}

// Requests returns the operations that were asked for, each with its namespace behind a space, and forgets them.
func (e *Engine) Requests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.requests
	e.requests = nil
	return all
}

// ServeHTTP implements http.Handler.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	refuse := func(status int, why ...string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string][]string{"errors": append([]string{}, why...)})
	}
	operation, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/transit/"), "/")
	e.requests = append(e.requests, operation+" "+r.Header.Get("X-Vault-Namespace"))
	var body struct {
		Plaintext  string `json:"plaintext"`
		Ciphertext string `json:"ciphertext"`
	}
	switch {
	case e.sealed:
		refuse(http.StatusServiceUnavailable, "Vault is sealed")
	case r.Header.Get("X-Vault-Token") != Token:
		refuse(http.StatusForbidden, "permission denied")
	case !strings.HasPrefix(r.URL.Path, "/v1/transit/"):
		refuse(http.StatusNotFound, fmt.Sprintf("no handler for route %q. route entry not found.", strings.TrimPrefix(r.URL.Path, "/v1/")))
	case r.Method != http.MethodPost || operation != "encrypt" && operation != "decrypt":
		refuse(http.StatusMethodNotAllowed, "unsupported operation")
	case key != KeyName:
		refuse(http.StatusBadRequest, "encryption key not found")
	case json.NewDecoder(r.Body).Decode(&body) != nil:
		refuse(http.StatusBadRequest, "failed to parse JSON input")
	case operation == "encrypt":
		plain, err := base64.StdEncoding.DecodeString(body.Plaintext)
		if err != nil {
			refuse(http.StatusBadRequest, "failed to base64-decode plaintext")
			return
		}
		text := fmt.Sprintf("vault:v%d:%s", len(e.versions), base64.StdEncoding.EncodeToString(e.versions[len(e.versions)-1].Seal(plain, nil)))
		e.writeAnswer(w, map[string]any{"ciphertext": text, "key_version": len(e.versions)})
	default:
		plain, why := e.decryptText(body.Ciphertext)
		if why != "" {
			refuse(http.StatusBadRequest, why)
			return
		}
		e.writeAnswer(w, map[string]any{"plaintext": base64.StdEncoding.EncodeToString(plain)})
	}
}

func (e *Engine) writeAnswer(w http.ResponseWriter, data map[string]any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"request_id": "r", "lease_id": "", "renewable": false, "lease_duration": 0, "data": data, "wrap_info": nil, "warnings": nil, "auth": nil})
}

// decryptText returns the plaintext, or why there is none. mu is locked.
func (e *Engine) decryptText(ciphertext string) (plain []byte, why string) {
	parts := strings.SplitN(ciphertext, ":", 3)
	if len(parts) != 3 || parts[0] != "vault" {
		return nil, "invalid ciphertext: no prefix"
	}
	version, err := strconv.Atoi(strings.TrimPrefix(parts[1], "v"))
	if err != nil || version < 1 || version > len(e.versions) {
		return nil, "invalid ciphertext: version is too new"
	}
	if version < e.minimum {
		return nil, "ciphertext or signature version is disallowed by policy (too old)"
	}
	sealed, err := base64.StdEncoding.DecodeString(parts[2])
	if err == nil {
		plain, err = e.versions[version-1].Open(sealed, nil)
	}
	if err != nil {
		return nil, "cipher: message authentication failed"
	}
	return plain, ""
}
