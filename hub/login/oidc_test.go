package login_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/login"
	"skerry/hub/login/logintest"
	"skerry/hub/state"
)

// oidcHarness is a harness with a provider and its auth method.
type oidcHarness struct {
	*harness
	provider *logintest.Provider
	method   fleet.ACLAuthMethod
	attempt  login.OIDCLogin
}

func newOIDCHarness(t *testing.T) *oidcHarness {
	o := &oidcHarness{harness: newHarness(t)}
	o.provider = logintest.NewProvider(t, func() time.Time { return o.now })
	o.method = oidcMethod(o.provider.URL)
	c := o.method.Config
	c.OIDCClientID, c.OIDCClientSecret, c.DiscoveryCaPem, c.SigningAlgs, c.OIDCEnablePKCE = o.provider.ClientID, o.provider.ClientSecret, []string{o.provider.CA()}, []string{"EdDSA"}, true
	o.storeMethod(o.method)
	o.storeRules("sso", [3]string{`"dev" in list.groups and value.user == "ann"`, "policy", "read"})
	o.provider.SetUserInfo(map[string]any{"sub": "ann", "groups": []string{"dev"}})
	o.attempt = login.OIDCLogin{Method: "sso", RedirectURI: "http://localhost:4649/oidc/callback", ClientNonce: "n0nce"}
	return o
}

// beginLogin returns what the provider sends back to a person who logs in.
func (o *oidcHarness) beginLogin() (*url.URL, login.OIDCAnswer) {
	o.tb.Helper()
	text, err := o.AuthURL(o.tb.Context(), o.attempt)
	if err != nil {
		o.tb.Fatal(err)
	}
	u, err := url.Parse(text)
	if err != nil {
		o.tb.Fatal(err)
	}
	back := o.provider.LogIn(o.tb, text)
	return u, login.OIDCAnswer{State: back.Get("state"), Code: back.Get("code"), Issuer: back.Get("iss")}
}

func (o *oidcHarness) completeLogin(answer login.OIDCAnswer) (fleet.ACLToken, error) {
	return o.CompleteOIDC(o.tb.Context(), o.attempt, answer)
}

// The whole login: URL, provider, code, token. A code works once, and another hub can complete the login.
func TestLoginOIDC(t *testing.T) {
	o := newOIDCHarness(t)
	u, answer := o.beginLogin()
	q := u.Query()
	if q.Get("nonce") != "n0nce" || q.Get("scope") != "openid groups" || q.Get("code_challenge_method") != "S256" || q.Get("redirect_uri") != o.attempt.RedirectURI {
		t.Errorf("the URL: %v", q)
	}
	if strings.Contains(u.String(), "s3cret") || len(answer.State) > 300 {
		t.Errorf("the URL: %s", u)
	}
	other := login.New(login.Config{State: o.store, Wrap: reversing{}, Now: func() time.Time { return o.now }})
	token, err := other.CompleteOIDC(t.Context(), o.attempt, answer)
	if err != nil {
		t.Fatal(err)
	}
	if token.Name != "OIDC-sso" || fmt.Sprint(token.Policies) != "[read]" || !token.ExpirationTime.Equal(o.now.Add(time.Hour)) || token.Type != fleet.ACLTokenClient {
		t.Errorf("the token: %+v", token)
	}
	_, err = o.completeLogin(answer)
	mustFailWith(t, err, fleet.CodeForbidden, "the provider refuses the code: invalid_grant unknown code")
	o.method.Config.OIDCEnablePKCE = false
	o.storeMethod(o.method)
	u, answer = o.beginLogin()
	if u.Query().Has("code_challenge") {
		t.Errorf("PKCE: %s", u)
	}
	if _, err := o.completeLogin(answer); err != nil {
		t.Error(err)
	}
	o.method.Config.OIDCDisableUserInfo = true
	o.storeMethod(o.method)
	_, answer = o.beginLogin()
	_, err = o.completeLogin(answer)
	mustFailWith(t, err, fleet.CodeInvalid, "no role or policy bindings matched")
	o.provider.SetDescription(map[string]any{"token_endpoint_auth_methods_supported": []string{"client_secret_post"}})
	o.provider.SetClaims(map[string]any{"groups": []string{"dev"}})
	o.now = o.now.Add(login.FreshFor)
	_, answer = o.beginLogin()
	if _, err := o.completeLogin(answer); err != nil {
		t.Errorf("the secret in the body: %v", err)
	}
}

// A login is completed by the client that began it, and in time.
func TestForeignLogins(t *testing.T) {
	o := newOIDCHarness(t)
	_, answer := o.beginLogin()
	_, second := o.beginLogin()
	if answer.State == second.State {
		t.Error("two logins have the same state")
	}
	forged := base64.RawURLEncoding.EncodeToString(append([]byte("\x03key"), make([]byte, 60)...))
	for name, change := range map[string]func(*login.OIDCLogin, *login.OIDCAnswer){
		"another nonce":    func(l *login.OIDCLogin, _ *login.OIDCAnswer) { l.ClientNonce = "other" },
		"another redirect": func(l *login.OIDCLogin, _ *login.OIDCAnswer) { l.RedirectURI = "http://localhost:1/oidc/callback" },
		"no state":         func(_ *login.OIDCLogin, a *login.OIDCAnswer) { a.State = "" },
		"cut state":        func(_ *login.OIDCLogin, a *login.OIDCAnswer) { a.State = a.State[:20] },
		"forged state":     func(_ *login.OIDCLogin, a *login.OIDCAnswer) { a.State = forged },
		"long state":       func(_ *login.OIDCLogin, a *login.OIDCAnswer) { a.State = strings.Repeat("A", 2000) },
		"key without text": func(_ *login.OIDCLogin, a *login.OIDCAnswer) {
			a.State = base64.RawURLEncoding.EncodeToString([]byte{200, 1})
		},
	} {
		in, changed := o.attempt, answer
		change(&in, &changed)
		_, err := o.CompleteOIDC(t.Context(), in, changed)
		if err == nil || !strings.Contains(err.Error(), "the state is not that of this login") {
			t.Errorf("%s: %v", name, err)
		}
	}
	changed := answer
	changed.Issuer = "https://somebody.example.com"
	_, err := o.completeLogin(changed)
	mustFailWith(t, err, fleet.CodeForbidden, `of the issuer "https://somebody.example.com"`)
	changed = answer
	changed.Code = ""
	_, err = o.completeLogin(changed)
	mustFailWith(t, err, fleet.CodeInvalid, "the code has 0 bytes")
	changed = login.OIDCAnswer{State: second.State, Code: answer.Code}
	_, err = o.completeLogin(changed)
	mustFailWith(t, err, fleet.CodeForbidden, "another verifier")
	o.now = o.now.Add(10 * time.Minute)
	_, err = o.completeLogin(second)
	mustFailWith(t, err, fleet.CodeForbidden, "this login has ended: it has 10m0s")
}

func TestBadOIDCRequests(t *testing.T) {
	o := newOIDCHarness(t)
	o.method.Config.AllowedRedirectURIs = []string{"http://localhost:4649/oidc/callback", "https://hub.example.com/ui"}
	o.storeMethod(o.method)
	for _, tc := range []struct {
		in   login.OIDCLogin
		part string // "": it is good
	}{
		{o.attempt, ""},
		{login.OIDCLogin{Method: "sso", RedirectURI: "http://127.0.0.1:9/oidc/callback", ClientNonce: "n"}, ""},
		{login.OIDCLogin{Method: "sso", RedirectURI: "http://[::1]:9/oidc/callback", ClientNonce: "n"}, ""},
		{login.OIDCLogin{Method: "sso", RedirectURI: "https://hub.example.com/ui", ClientNonce: "n"}, ""},
		{login.OIDCLogin{Method: "sso", RedirectURI: "https://hub.example.com:1/ui", ClientNonce: "n"}, "is not one of its AllowedRedirectURIs"},
		{login.OIDCLogin{Method: "sso", RedirectURI: "https://hub.example.com/ui/", ClientNonce: "n"}, "is not one of its AllowedRedirectURIs"},
		{login.OIDCLogin{Method: "sso", RedirectURI: "http://localhost:4649/other", ClientNonce: "n"}, "is not one of its AllowedRedirectURIs"},
		{login.OIDCLogin{Method: "sso", RedirectURI: "https://localhost:4649/oidc/callback", ClientNonce: "n"}, "is not one of its AllowedRedirectURIs"},
		{login.OIDCLogin{Method: "sso", RedirectURI: "http://localhost@evil.example.com/oidc/callback", ClientNonce: "n"}, "is not one of its AllowedRedirectURIs"},
		{login.OIDCLogin{Method: "sso", RedirectURI: "http://evil@localhost/oidc/callback", ClientNonce: "n"}, "is not one of its AllowedRedirectURIs"},
		{login.OIDCLogin{Method: "sso", RedirectURI: "http://localhost:4649/oidc/callback?x=1", ClientNonce: "n"}, "is not one of its AllowedRedirectURIs"},
		{login.OIDCLogin{Method: "sso", ClientNonce: "n"}, "the redirect URI has 0 bytes"},
		{login.OIDCLogin{Method: "sso", RedirectURI: o.attempt.RedirectURI}, "the client nonce has 0 bytes"},
		{login.OIDCLogin{Method: "sso", RedirectURI: o.attempt.RedirectURI, ClientNonce: strings.Repeat("n", 257)}, "the client nonce has 257 bytes"},
		{login.OIDCLogin{RedirectURI: o.attempt.RedirectURI, ClientNonce: "n"}, "no auth method is named"},
		{login.OIDCLogin{Method: "none", RedirectURI: o.attempt.RedirectURI, ClientNonce: "n"}, "not found"},
	} {
		_, err := o.AuthURL(t.Context(), tc.in)
		if tc.part == "" && err != nil || tc.part != "" && (err == nil || !strings.Contains(err.Error(), tc.part)) {
			t.Errorf("%+v: %v, not %q", tc.in, err, tc.part)
		}
	}
	o.storeMethod(jwtMethod())
	_, err := o.AuthURL(t.Context(), login.OIDCLogin{Method: "ci", RedirectURI: "x", ClientNonce: "n"})
	mustFailWith(t, err, fleet.CodeInvalid, "its type is JWT, not OIDC")
	_, err = o.LoginJWT(t.Context(), "sso", "x")
	mustFailWith(t, err, fleet.CodeInvalid, "its type is OIDC, not JWT")
}

// An answer of the provider that is not about this login is refused.
func TestBadProviders(t *testing.T) {
	for name, tc := range map[string]struct {
		claims map[string]any
		change func(*oidcHarness)
		part   string
	}{
		"another nonce":        {map[string]any{"nonce": "other"}, nil, "its nonce is that of another login"},
		"no nonce":             {map[string]any{"nonce": nil}, nil, "its nonce is that of another login"},
		"another audience":     {map[string]any{"aud": "other"}, nil, `expected audience "skerry"`},
		"another client":       {map[string]any{"aud": []string{"skerry", "other"}, "azp": "other"}, nil, `made for the client "other"`},
		"another issuer":       {map[string]any{"iss": "https://other.example.com"}, nil, "issued by a different provider"},
		"expired":              {map[string]any{"exp": 1}, nil, "expired"},
		"another access token": {map[string]any{"at_hash": "AAAA"}, nil, "access token hash does not match"},
		"no ID token":          {map[string]any{"no token": true}, nil, "the provider has sent no ID token"},
		"bound audience":       {nil, func(o *oidcHarness) { o.method.Config.BoundAudiences = []string{"x"} }, `its audience is ["skerry"]`},
		"huge":                 {map[string]any{"x": strings.Repeat("x", 70<<10)}, nil, "bytes: at most 65536"},
		"algorithm":            {nil, func(o *oidcHarness) { o.method.Config.SigningAlgs = []string{"ES256"} }, "the token is refused"},
		"another secret":       {nil, func(o *oidcHarness) { o.method.Config.OIDCClientSecret = "marked" }, "invalid_client another secret than …"},
		"no secret":            {nil, func(o *oidcHarness) { o.method.Config.OIDCClientSecret = "" }, "invalid_client another secret"},
		"user info of another": {nil, func(o *oidcHarness) { o.provider.SetUserInfo(map[string]any{"sub": "bob"}) }, "the user info is of another person"},
		"user info is nested": {nil, func(o *oidcHarness) {
			deep := json.RawMessage(strings.Repeat("[", 32) + strings.Repeat("]", 32))
			o.provider.SetUserInfo(map[string]any{"sub": "ann", "x": deep})
		}, "nested more than 32 deep"},
		"user info is huge": {nil, func(o *oidcHarness) {
			o.provider.SetUserInfo(map[string]any{"sub": "ann", "x": strings.Repeat("x", 70<<10)})
		}, "the user info has"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOIDCHarness(t)
			o.provider.SetClaims(tc.claims)
			if tc.change != nil {
				tc.change(o)
				o.storeMethod(o.method)
			}
			_, answer := o.beginLogin()
			_, err := o.completeLogin(answer)
			mustFailWith(t, err, fleet.CodeForbidden, tc.part)
			if err != nil && (strings.Contains(err.Error(), answer.Code) || strings.Contains(err.Error(), "marked") || len(err.Error()) > 1000) {
				t.Errorf("the error: %v", err)
			}
		})
	}
}

// A provider whose endpoints are plain HTTP gets neither codes nor secrets. User info names neither issuer nor subject.
func TestOIDCEndpoints(t *testing.T) {
	o := newOIDCHarness(t)
	o.provider.SetDescription(map[string]any{"token_endpoint": "http://sso.example.com/token"})
	_, err := o.AuthURL(t.Context(), o.attempt)
	mustFailWith(t, err, fleet.CodeUnavailable, "plain HTTP")
	o.now = o.now.Add(login.RetryInterval)
	o.provider.SetDescription(nil)
	o.method.Config.ClaimMappings = map[string]string{"iss": "issuer", "sub": "user"}
	o.storeMethod(o.method)
	o.storeRules("sso", [3]string{fmt.Sprintf("value.issuer == %q", o.provider.URL), "management", ""})
	o.provider.SetUserInfo(map[string]any{"sub": "ann", "iss": "https://other.example.com"})
	_, answer := o.beginLogin()
	if token, err := o.completeLogin(answer); err != nil || token.Type != fleet.ACLTokenManagement || token.ExpirationTime == nil {
		t.Errorf("%+v, %v", token, err)
	}
	row, _ := o.store.View().ACLAuthMethod("sso")
	moved := *row
	moved.Name = "moved" // with the secret of another method
	o.mustApply(state.ACLAuthMethodStore{Method: moved})
	o.attempt.Method = "moved"
	_, answer = o.beginLogin()
	_, err = o.completeLogin(answer)
	mustFailWith(t, err, fleet.CodeInternal, "bound to something else")
	o.attempt.Method = "sso"
	foreign := *row
	foreign.Secret.By = "other"
	o.mustApply(state.ACLAuthMethodStore{Method: foreign})
	_, answer = o.beginLogin()
	_, err = o.completeLogin(answer)
	mustFailWith(t, err, fleet.CodeInternal, "another key")
}

// FuzzState: no state but the one that was made is that of a login.
func FuzzState(f *testing.F) {
	h := newHarness(f)
	m := oidcMethod("https://127.0.0.1:1")
	h.storeMethod(m)
	in := login.OIDCLogin{Method: "sso", RedirectURI: m.Config.AllowedRedirectURIs[0], ClientNonce: "n"}
	f.Add("")
	f.Add("A2tleQ")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte("\x03key\x00")))
	f.Fuzz(func(t *testing.T, text string) {
		if seed, err := login.OpenState(h.Logins, in, text); err == nil && len(seed) != 32 {
			t.Errorf("%q: %x", text, seed)
		}
	})
}
