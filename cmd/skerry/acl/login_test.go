package acl_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"skerry/api"
	"skerry/cmd/skerry/acl"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/contextfile"
	"skerry/fleet"
)

// loginHub answers as a hub to those who log in, and is the browser of the person.
type loginHub struct {
	*httptest.Server
	tb       testing.TB
	methods  []api.ACLAuthMethodStub
	answer   url.Values // of the provider; nil: none
	browsers sync.WaitGroup

	mu        sync.Mutex
	begun     api.ACLOIDCAuthURLRequest
	completed api.ACLOIDCCompleteAuthRequest
	login     api.ACLLoginRequest
	foreign   int // status of the answer to another login
}

func newLoginHub(tb testing.TB) *loginHub {
	h := &loginHub{tb: tb, answer: url.Values{"state": {"s1"}, "code": {"c1"}, "iss": {"https://sso.example.com"}},
		methods: []api.ACLAuthMethodStub{{Name: "ci", Type: fleet.ACLAuthMethodJWT}, {Name: "sso", Type: fleet.ACLAuthMethodOIDC, Default: true}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/acl/auth-methods", func(w http.ResponseWriter, _ *http.Request) { h.writeJSON(w, h.methods) })
	mux.HandleFunc("PUT /v1/acl/oidc/auth-url", func(w http.ResponseWriter, r *http.Request) {
		h.readJSON(r, &h.begun)
		h.browsers.Go(h.browse)
		h.writeJSON(w, api.ACLOIDCAuthURLAnswer{AuthURL: "https://sso.example.com/authorize?state=s1"})
	})
	mux.HandleFunc("PUT /v1/acl/oidc/complete-auth", func(w http.ResponseWriter, r *http.Request) {
		h.readJSON(r, &h.completed)
		h.writeJSON(w, fleet.ACLToken{AccessorID: "accessor", SecretID: "the-secret", Name: "OIDC-sso", Type: fleet.ACLTokenClient})
	})
	mux.HandleFunc("PUT /v1/acl/login", func(w http.ResponseWriter, r *http.Request) {
		h.readJSON(r, &h.login)
		h.writeJSON(w, fleet.ACLToken{AccessorID: "accessor", SecretID: "the-secret", Name: "JWT-ci", Type: fleet.ACLTokenClient})
	})
	h.Server = httptest.NewServer(mux)
	tb.Cleanup(h.Close)
	tb.Cleanup(h.browsers.Wait)
	return h
}

func (h *loginHub) readJSON(r *http.Request, into any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		h.tb.Error(err)
	}
}

func (h *loginHub) writeJSON(w http.ResponseWriter, answer any) {
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		h.tb.Error(err)
	}
}

// browse goes back to the command: with the answer to another login first.
func (h *loginHub) browse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range []url.Values{{"state": {"other"}, "code": {"evil"}}, h.answer} {
		res, err := http.Get(h.begun.RedirectURI + "?" + q.Encode())
		if err != nil {
			h.tb.Error(err)
			return
		}
		res.Body.Close()
		if q.Get("state") == "other" {
			h.foreign = res.StatusCode
		}
	}
}

// runLogin runs skerry login with a context "hub" for the hub, and returns what it writes.
func (h *loginHub) runLogin(contexts, stdin string, args ...string) (string, error) {
	h.tb.Helper()
	s := &command.Session{}
	c := acl.LoginCommand(s)
	s.AddFlags(c)
	c.SilenceUsage, c.SilenceErrors = true, true
	var out, beside bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&beside)
	c.SetIn(strings.NewReader(stdin))
	c.SetArgs(append([]string{"--context-file", contexts, "--no-browser", "--oidc-callback-addr", "localhost:0"}, args...))
	err := c.ExecuteContext(h.tb.Context())
	return out.String() + beside.String(), err
}

func (h *loginHub) mustMakeContext() string {
	h.tb.Helper()
	dir := h.tb.TempDir()
	path, tokenFile := filepath.Join(dir, "contexts.json"), filepath.Join(dir, "token")
	if err := os.WriteFile(tokenFile, []byte("old"), 0o600); err != nil {
		h.tb.Fatal(err)
	}
	file := contextfile.File{Version: 1, Current: "hub", Contexts: map[string]contextfile.Context{"hub": {Addr: h.URL, Token: "old"}, "file": {Addr: h.URL, TokenFile: tokenFile}}}
	if err := file.Save(path); err != nil {
		h.tb.Fatal(err)
	}
	return path
}

// The command awaits the provider's answer to its own login, and keeps the token in the context in use.
func TestLoginAtProvider(t *testing.T) {
	h := newLoginHub(t)
	contexts := h.mustMakeContext()
	out, err := h.runLogin(contexts, "", "--save")
	if err != nil {
		t.Fatal(err)
	}
	h.browsers.Wait()
	for _, part := range []string{"https://sso.example.com/authorize?state=s1", "Successfully logged in via OIDC and sso", `the token is kept in the context "hub"`, "accessor"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in %s", part, out)
		}
	}
	if strings.Contains(out, "the-secret") {
		t.Errorf("the secret is shown: %s", out)
	}
	want := api.ACLOIDCCompleteAuthRequest{AuthMethodName: "sso", RedirectURI: h.begun.RedirectURI, ClientNonce: h.begun.ClientNonce, State: "s1", Code: "c1", Iss: "https://sso.example.com"}
	if h.completed != want || len(want.ClientNonce) < 20 || h.foreign != http.StatusBadRequest {
		t.Errorf("completed %+v, not %+v; another login: %d", h.completed, want, h.foreign)
	}
	if u, err := url.Parse(h.begun.RedirectURI); err != nil || u.Hostname() != "localhost" || u.Port() == "0" || u.Path != "/oidc/callback" {
		t.Errorf("redirect URI %s", h.begun.RedirectURI)
	}
	file, err := contextfile.Load(contexts)
	if err != nil || file.Contexts["hub"].Token != "the-secret" || file.Contexts["hub"].Addr != h.URL {
		t.Errorf("the contexts: %+v, %v", file, err)
	}
	out, err = h.runLogin(contexts, "")
	if err != nil || !strings.Contains(out, "the-secret") {
		t.Errorf("without --save: %s, %v", out, err)
	}
	h.answer = url.Values{"state": {"s1"}, "error": {"access_denied"}, "error_description": {"not today"}}
	_, err = h.runLogin(contexts, "")
	if err == nil || !strings.Contains(err.Error(), "the provider refuses the login: access_denied not today") {
		t.Errorf("a refusal: %v", err)
	}
}

func TestLoginByJWT(t *testing.T) {
	h := newLoginHub(t)
	contexts := h.mustMakeContext()
	out, err := h.runLogin(contexts, "the.jwt.itself\n", "--method", "ci", "--login-token", "-")
	if err != nil || !strings.Contains(out, "the-secret") || h.login != (api.ACLLoginRequest{AuthMethodName: "ci", LoginToken: "the.jwt.itself"}) {
		t.Errorf("%s, %v: %+v", out, err, h.login)
	}
	h.login = api.ACLLoginRequest{}
	for part, args := range map[string][]string{
		"it needs a login token":                 {"--method", "ci"},
		"no auth method \"none\"":                {"--method", "none"},
		"no default auth method of the type JWT": {"--login-token", "x"},
		"no context is in use":                   {"--method", "ci", "--login-token", "x", "--save", "--addr", h.URL},
		"reads its token from":                   {"--method", "ci", "--login-token", "x", "--save", "--context", "file"},
	} {
		if _, err := h.runLogin(contexts, "", args...); err == nil || !strings.Contains(err.Error(), part) || h.login.LoginToken != "" {
			t.Errorf("%v: %v, logged in with %+v", args, err, h.login)
		}
	}
}
