package api_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	nomad "github.com/hashicorp/nomad/api"

	"skerry/api"
	"skerry/fleet"
	"skerry/hub/login"
	"skerry/hub/login/logintest"
	"skerry/hub/state"
)

func loginsOf(h *fakeHub) *login.Logins {
	return login.New(login.Config{State: h.store, Wrap: boundSecrets{}})
}

// boundSecrets encrypts nothing, but knows what a secret was bound to.
type boundSecrets struct{}

func (boundSecrets) Wrap(plain, bound []byte) ([]byte, string, error) {
	return slices.Concat(bound, []byte("="), plain), "none", nil
}

func (boundSecrets) Unwrap(_ string, wrapped, bound []byte) ([]byte, error) {
	plain, ok := bytes.CutPrefix(wrapped, append(bound, '='))
	if !ok {
		return nil, errors.New("bound to something else")
	}
	return plain, nil
}

// loginKey signs the JWTs of these tests.
var loginKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// mustSignJWT returns a JWT that ends in an hour, with changed claims.
func (a *aclHub) mustSignJWT(changes map[string]any) string {
	a.tb.Helper()
	all := map[string]any{"iss": "https://ci.example.com", "aud": "skerry", "sub": "build-7", "groups": []string{"ci"}, "iat": a.now.Unix(), "exp": a.now.Add(time.Hour).Unix()}
	for name, value := range changes {
		all[name] = value
	}
	payload, err := json.Marshal(all)
	mustSucceed(a.tb, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: loginKey}, nil)
	mustSucceed(a.tb, err)
	signed, err := signer.Sign(payload)
	mustSucceed(a.tb, err)
	raw, err := signed.CompactSerialize()
	mustSucceed(a.tb, err)
	return raw
}

// loginMethod is an auth method with loginKey, as Nomad's client has it.
func loginMethod() *nomad.ACLAuthMethod {
	der, _ := x509.MarshalPKIXPublicKey(loginKey.Public())
	return &nomad.ACLAuthMethod{
		Name: "ci", Type: "JWT", TokenLocality: "global", MaxTokenTTL: 2 * time.Hour, TokenNameFormat: "${auth_method_name}-${value.user}", Default: true,
		Config: &nomad.ACLAuthMethodConfig{
			JWTValidationPubKeys: []string{string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}, SigningAlgs: []string{"EdDSA"},
			BoundIssuer: []string{"https://ci.example.com"}, BoundAudiences: []string{"skerry"}, ExpirationLeeway: 5 * time.Second, ClockSkewLeeway: time.Minute,
			ClaimMappings: map[string]string{"sub": "user"}, ListClaimMappings: map[string]string{"groups": "groups"},
		},
	}
}

// Nomad's client sets up a login, and logs in. The token may do what the rules say until it ends, and the audit has both
// logins without a secret.
func TestLoginByNomadsClient(t *testing.T) {
	a := newACLHub(t)
	anybody := a.clientOf("")
	_, _, err := anybody.ACLAuth().Login(&nomad.ACLLoginRequest{AuthMethodName: "ci", LoginToken: "x"}, nil)
	mustFailWith(t, err, "400", "ACL support disabled")
	c, _ := a.mustBootstrap()
	_, err = c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "read", Rules: `namespace "default" { policy = "read" }`}, nil)
	mustSucceed(t, err)
	made, _, err := c.ACLAuthMethods().Create(loginMethod(), nil)
	if err != nil || made.CreateIndex == 0 || made.MaxTokenTTL != 2*time.Hour || made.Config.ExpirationLeeway != 5*time.Second || !made.CreateTime.Equal(a.now) {
		t.Fatalf("the method: %+v, %v", made, err)
	}
	raw := a.mustSignJWT(nil)
	_, _, err = anybody.ACLAuth().Login(&nomad.ACLLoginRequest{AuthMethodName: "ci", LoginToken: raw}, nil)
	mustFailWith(t, err, "400", "no role or policy bindings matched")
	rule, _, err := c.ACLBindingRules().Create(&nomad.ACLBindingRule{AuthMethod: "ci", Selector: `"ci" in list.groups`, BindType: "policy", BindName: "read"}, nil)
	if err != nil || rule.ID == "" || rule.CreateIndex == 0 {
		t.Fatalf("the rule: %+v, %v", rule, err)
	}
	mustApply(t, a.hub, state.ACLRoleStore{Role: fleet.ACLRole{ID: "r", Name: "builders", Policies: []fleet.ACLRolePolicy{{Name: "read"}}}})
	mustApply(t, a.hub, state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{ID: "b", AuthMethod: "ci", BindType: fleet.ACLBindRole, BindName: "builders"}})
	token, _, err := anybody.ACLAuth().Login(&nomad.ACLLoginRequest{AuthMethodName: "ci", LoginToken: raw}, nil)
	if err != nil || token.Name != "ci-build-7" || token.Type != "client" || !token.Global || token.SecretID == "" || !token.ExpirationTime.Equal(a.now.Add(2*time.Hour)) {
		t.Fatalf("the token: %+v, %v", token, err)
	}
	ci := a.clientOf(token.SecretID)
	_, _, err = ci.Jobs().List(nil)
	mustSucceed(t, err)
	_, _, err = ci.ACLBindingRules().List(nil)
	mustFailWith(t, err, "403")
	_, _, err = anybody.ACLAuth().Login(&nomad.ACLLoginRequest{AuthMethodName: "ci", LoginToken: a.mustSignJWT(map[string]any{"aud": "vault"})}, nil)
	mustFailWith(t, err, "403", `its audience is ["vault"]`)

	_, err = c.ACLAuthMethods().Delete("ci", nil)
	mustSucceed(t, err)
	_, _, err = anybody.ACLAuth().Login(&nomad.ACLLoginRequest{AuthMethodName: "ci", LoginToken: raw}, nil)
	mustFailWith(t, err, "404", `ACL auth method "ci" not found`)
	_, _, err = ci.Jobs().List(nil)
	mustSucceed(t, err)
	a.now = a.now.Add(2 * time.Hour)
	_, _, err = ci.Jobs().List(nil)
	mustFailWith(t, err, "403", "ACL token expired")
	a.checkLoginAudit(raw, token)
}

// checkLoginAudit checks the entries of logins: one succeeded, with the accessor and the roles of its token.
func (a *aclHub) checkLoginAudit(raw string, token *nomad.ACLToken) {
	a.tb.Helper()
	var got []string
	for _, e := range a.audit.entries {
		text, _ := json.Marshal(e)
		if strings.Contains(string(text), raw) || strings.Contains(string(text), token.SecretID) {
			a.tb.Errorf("the audit has a secret: %s", text)
		}
		if e.Object == "/v1/acl/login" {
			who := "nobody"
			if e.Actor.Accessor == token.AccessorID {
				who = fmt.Sprint("the token of ", e.Actor.Roles)
			}
			got = append(got, fmt.Sprint(e.Status, " ", who))
		}
	}
	if text, want := strings.Join(got, ", "), "400 nobody, 400 nobody, 200 the token of [builders], 403 nobody, 404 nobody"; text != want {
		a.tb.Errorf("the audit of logins: %s, not %s", text, want)
	}
}

func TestAuthMethodEndpoints(t *testing.T) {
	a := newACLHub(t)
	c, _ := a.mustBootstrap()
	sso := &nomad.ACLAuthMethod{Name: "sso", Type: "OIDC", TokenLocality: "local", MaxTokenTTL: time.Hour, Config: &nomad.ACLAuthMethodConfig{
		OIDCDiscoveryURL: "https://sso.example.com", OIDCClientID: "skerry", OIDCClientSecret: "client s3cret", AllowedRedirectURIs: []string{"http://localhost:4649/oidc/callback"},
	}}
	made, _, err := c.ACLAuthMethods().Create(sso, nil)
	if err != nil || made.Config.OIDCClientSecret != "redacted" {
		t.Fatalf("the method: %+v, %v", made, err)
	}
	made.MaxTokenTTL = 30 * time.Minute
	_, _, err = c.ACLAuthMethods().Update(made, nil)
	mustSucceed(t, err)
	read, _, err := c.ACLAuthMethods().Get("sso", nil)
	if err != nil || read.MaxTokenTTL != 30*time.Minute || read.Config.OIDCClientSecret != "redacted" || read.Config.OIDCClientID != "skerry" {
		t.Errorf("read: %+v, %v", read, err)
	}
	if row, _ := a.hub.store.View().ACLAuthMethod("sso"); !strings.HasSuffix(string(row.Secret.Data), "=client s3cret") || row.Config.OIDCClientSecret != "" {
		t.Errorf("stored: %+v", row)
	}
	_, _, err = c.ACLAuthMethods().Update(&nomad.ACLAuthMethod{Name: "sso", TokenNameFormat: "x"}, nil)
	mustSucceed(t, err)
	if row, _ := a.hub.store.View().ACLAuthMethod("sso"); row.TokenNameFormat != "x" || row.TokenLocality != "local" || !strings.HasSuffix(string(row.Secret.Data), "=client s3cret") {
		t.Errorf("a change of one field: %+v", row)
	}
	sso.Config.OIDCClientSecret = ""
	_, _, err = c.ACLAuthMethods().Update(sso, nil)
	mustSucceed(t, err)
	if row, _ := a.hub.store.View().ACLAuthMethod("sso"); len(row.Secret.Data) > 0 {
		t.Errorf("the secret is still there: %+v", row)
	}
	sso.Config.OIDCClientSecret = "redacted"
	_, _, err = c.ACLAuthMethods().Update(sso, nil)
	mustFailWith(t, err, "400", "they have none")
	sso.Config.OIDCClientAssertion = &nomad.OIDCClientAssertion{KeySource: "nomad"}
	_, _, err = c.ACLAuthMethods().Update(sso, nil)
	mustFailWith(t, err, "400", "OIDCClientAssertion is not supported")
	_, _, err = c.ACLAuthMethods().Create(&nomad.ACLAuthMethod{Name: "bad", Type: "JWT"}, nil)
	mustFailWith(t, err, "400", "token locality")
	_, _, err = c.ACLAuthMethods().Get("none", nil)
	mustFailWith(t, err, "404")

	anybody := a.clientOf("")
	listed, _, err := anybody.ACLAuthMethods().List(nil)
	if err != nil || len(listed) != 1 || listed[0].Name != "sso" || listed[0].Type != "OIDC" {
		t.Errorf("listed: %+v, %v", listed, err)
	}
	_, _, err = anybody.ACLAuthMethods().List(&nomad.QueryOptions{Filter: `Config.OIDCClientID == "skerry"`})
	mustFailWith(t, err, "400")
	_, _, err = anybody.ACLAuthMethods().Get("sso", nil)
	mustFailWith(t, err, "403")
}

func TestBindingRuleEndpoints(t *testing.T) {
	a := newACLHub(t)
	c, _ := a.mustBootstrap()
	_, _, err := c.ACLAuthMethods().Create(loginMethod(), nil)
	mustSucceed(t, err)
	_, _, err = c.ACLBindingRules().Create(&nomad.ACLBindingRule{AuthMethod: "none", BindType: "management"}, nil)
	mustFailWith(t, err, "400", `no auth method "none"`)
	_, _, err = c.ACLBindingRules().Create(&nomad.ACLBindingRule{AuthMethod: "ci", BindType: "management", Selector: "x =="}, nil)
	mustFailWith(t, err, "400", "its selector cannot be read")
	_, _, err = c.ACLBindingRules().Create(&nomad.ACLBindingRule{ID: "mine", AuthMethod: "ci", BindType: "management"}, nil)
	mustFailWith(t, err, "400", "the hub draws its id")
	rule, _, err := c.ACLBindingRules().Create(&nomad.ACLBindingRule{AuthMethod: "ci", BindType: "role", BindName: "r-${value.user}", Selector: `value.user == "a"`, Description: "d"}, nil)
	mustSucceed(t, err)
	changed, _, err := c.ACLBindingRules().Update(&nomad.ACLBindingRule{ID: rule.ID, Description: "other"}, nil)
	if err != nil || changed.BindName != "r-${value.user}" || changed.BindType != "role" || changed.AuthMethod != "ci" || changed.Selector != "" || changed.CreateIndex != rule.CreateIndex {
		t.Errorf("changed: %+v, %v", changed, err)
	}
	if changed, _, err = c.ACLBindingRules().Update(&nomad.ACLBindingRule{ID: rule.ID, BindType: "management"}, nil); err != nil || changed.BindName != "" {
		t.Errorf("now management: %+v, %v", changed, err)
	}
	_, _, err = c.ACLBindingRules().Update(&nomad.ACLBindingRule{ID: "none", BindType: "management"}, nil)
	mustFailWith(t, err, "404")
	read, _, err := c.ACLBindingRules().Get(rule.ID, nil)
	if err != nil || read.Description != "" || read.BindType != "management" {
		t.Errorf("read: %+v, %v", read, err)
	}
	listed, _, err := c.ACLBindingRules().List(nil)
	if err != nil || len(listed) != 1 || listed[0].AuthMethod != "ci" {
		t.Errorf("listed: %+v, %v", listed, err)
	}
	_, err = c.ACLBindingRules().Delete(rule.ID, nil)
	mustSucceed(t, err)
	_, err = c.ACLBindingRules().Delete(rule.ID, nil)
	mustFailWith(t, err, "404")
	_, _, err = c.ACLBindingRules().Get(rule.ID, nil)
	mustFailWith(t, err, "404")
}

// A client that fails often has to wait, and a large request is refused.
func TestLoginsAreBounded(t *testing.T) {
	a := newACLHub(t)
	c, _ := a.mustBootstrap()
	_, _, err := c.ACLAuthMethods().Create(loginMethod(), nil)
	mustSucceed(t, err)
	mustApply(t, a.hub, state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{ID: "b", AuthMethod: "ci", BindType: fleet.ACLBindManagement}})
	url := a.srv.URL + "/v1/acl/login"
	status, body := mustAnswer(t, "PUT", url, `{"AuthMethodName":"ci","LoginToken":"`+strings.Repeat("x", 100<<10)+`"}`)
	if status != http.StatusBadRequest || !strings.Contains(body, "too large") {
		t.Errorf("a huge body: %d %.200s", status, body)
	}
	status, body = mustAnswer(t, "PUT", url, `{"AuthMethodName":"ci","LoginToken":"`+strings.Repeat("x", 65<<10)+`"}`)
	if status != http.StatusForbidden || !strings.Contains(body, "at most 65536") {
		t.Errorf("a huge token: %d %.200s", status, body)
	}
	request := fmt.Sprintf(`{"AuthMethodName":"ci","LoginToken":%q}`, a.mustSignJWT(nil))
	for range 28 {
		status, _ = mustAnswer(t, "PUT", url, `{"AuthMethodName":"ci","LoginToken":"a.b.c"}`)
	}
	if status != http.StatusForbidden {
		t.Errorf("the last try: %d", status)
	}
	before := a.hub.index
	status, body = mustAnswer(t, "PUT", url, request)
	if status != http.StatusTooManyRequests || !strings.Contains(body, "too many tries") || a.hub.index != before {
		t.Errorf("one too many: %d %s", status, body)
	}
	a.now = a.now.Add(time.Minute)
	status, body = mustAnswer(t, "PUT", url, request)
	var token fleet.ACLToken
	if err := json.Unmarshal([]byte(body[strings.Index(body, "{"):]), &token); status != http.StatusOK || err != nil || token.Type != fleet.ACLTokenManagement || token.ExpirationTime == nil {
		t.Errorf("a minute later: %d %s", status, body)
	}
	last := a.audit.entries[len(a.audit.entries)-1]
	if !reflect.DeepEqual(last.Actor, api.AuditActor{Accessor: token.AccessorID}) {
		t.Errorf("the audit: %+v", last)
	}
}

// TestBadLoginsChangeNothing: a login with a bad JWT, or where the keys cannot be fetched, says why. There is no token of it,
// and nothing of it is in the log.
func TestBadLoginsChangeNothing(t *testing.T) {
	a := newACLHub(t)
	c, _ := a.mustBootstrap()
	_, _, err := c.ACLAuthMethods().Create(loginMethod(), nil)
	mustSucceed(t, err)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	remote := loginMethod()
	remote.Name, remote.Default = "remote", false
	remote.Config.JWTValidationPubKeys, remote.Config.JWKSURL = nil, gone.URL+"/keys"
	_, _, err = c.ACLAuthMethods().Create(remote, nil)
	mustSucceed(t, err)
	for _, method := range []string{"ci", "remote"} {
		mustApply(t, a.hub, state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{ID: method, AuthMethod: method, BindType: fleet.ACLBindManagement}})
	}
	parts := strings.Split(a.mustSignJWT(nil), ".")
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	before := a.hub.index
	for name, test := range map[string]struct {
		method, raw string
		status      int
		says        string
	}{
		"alg none":             {"ci", part(`{"alg":"none"}`) + "." + parts[1] + ".", http.StatusForbidden, `it is signed with "none"`},
		"another audience":     {"ci", a.mustSignJWT(map[string]any{"aud": "vault"}), http.StatusForbidden, `its audience is ["vault"]`},
		"another key":          {"ci", parts[0] + "." + parts[1] + "." + part(strings.Repeat("x", 64)), http.StatusForbidden, "none of the auth method's 1 keys"},
		"ended":                {"ci", a.mustSignJWT(map[string]any{"exp": a.now.Add(-time.Hour).Unix()}), http.StatusForbidden, "it ended at 2026-05-01T11:00:00Z"},
		"huge":                 {"ci", strings.Repeat("x", login.MaxJWT+1), http.StatusForbidden, "at most 65536"},
		"nested":               {"ci", part(`{"alg":"EdDSA","x":`+strings.Repeat("[", 33)+strings.Repeat("]", 33)+`}`) + "." + parts[1] + "." + parts[2], http.StatusForbidden, "nested more than 32 deep"},
		"keys out of reach":    {"remote", strings.Join(parts, "."), http.StatusInternalServerError, "fetch the keys (JWKS) from " + gone.URL},
		"of an unknown method": {"none", strings.Join(parts, "."), http.StatusNotFound, `ACL auth method "none" not found`},
	} {
		status, said := mustAnswer(t, "PUT", a.srv.URL+"/v1/acl/login", fmt.Sprintf(`{"AuthMethodName":%q,"LoginToken":%q}`, test.method, test.raw))
		if status != test.status || !strings.Contains(said, test.says) {
			t.Errorf("%s: %d %.400s", name, status, said)
		}
	}
	if a.hub.index != before || len(slices.Collect(a.hub.store.View().ACLTokens())) != 1 {
		t.Errorf("after refusals the log is at entry %d, and was at %d", a.hub.index, before)
	}
}

// Nomad's client logs somebody in at an OIDC provider.
func TestOIDCByNomadsClient(t *testing.T) {
	a := newACLHub(t)
	c, _ := a.mustBootstrap()
	provider := logintest.NewProvider(t, func() time.Time { return a.now })
	_, err := c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "ann", Rules: `namespace "default" { policy = "read" }`}, nil)
	mustSucceed(t, err)
	_, _, err = c.ACLAuthMethods().Create(&nomad.ACLAuthMethod{Name: "sso", Type: "OIDC", TokenLocality: "global", MaxTokenTTL: time.Hour, Config: &nomad.ACLAuthMethodConfig{
		OIDCDiscoveryURL: provider.URL, DiscoveryCaPem: []string{provider.CA()}, OIDCClientID: provider.ClientID, OIDCClientSecret: provider.ClientSecret, OIDCEnablePKCE: true,
		SigningAlgs: []string{"EdDSA"}, AllowedRedirectURIs: []string{"http://localhost:4649/oidc/callback"}, ClaimMappings: map[string]string{"sub": "user"},
	}}, nil)
	mustSucceed(t, err)
	_, _, err = c.ACLBindingRules().Create(&nomad.ACLBindingRule{AuthMethod: "sso", BindType: "policy", BindName: "${value.user}"}, nil)
	mustSucceed(t, err)
	anybody := a.clientOf("")
	ask := nomad.ACLOIDCAuthURLRequest{AuthMethodName: "sso", RedirectURI: "http://localhost:4649/oidc/callback", ClientNonce: "n"}
	begun, _, err := anybody.ACLAuth().GetAuthURL(&ask, nil)
	mustSucceed(t, err)
	back := provider.LogIn(t, begun.AuthURL)
	complete := nomad.ACLOIDCCompleteAuthRequest{
		AuthMethodName: "sso", RedirectURI: ask.RedirectURI, ClientNonce: "other", State: back.Get("state"), Code: back.Get("code"), Iss: back.Get("iss"),
	}
	_, _, err = anybody.ACLAuth().CompleteAuth(&complete, nil)
	mustFailWith(t, err, "403", "the state is not that of this login")
	complete.ClientNonce = "n"
	token, _, err := anybody.ACLAuth().CompleteAuth(&complete, nil)
	if err != nil || token.Name != "OIDC-sso" || len(token.Policies) != 1 || token.ExpirationTime == nil {
		t.Fatalf("the token: %+v, %v", token, err)
	}
	_, _, err = a.clientOf(token.SecretID).Jobs().List(nil)
	mustSucceed(t, err)
	_, _, err = anybody.ACLAuth().CompleteAuth(&complete, nil)
	mustFailWith(t, err, "403", "the provider refuses the code")
	for _, e := range a.audit.entries {
		text, _ := json.Marshal(e)
		for _, secret := range []string{complete.Code, complete.State, token.SecretID, provider.ClientSecret} {
			if strings.Contains(string(text), secret) {
				t.Errorf("the audit has a secret: %s", text)
			}
		}
	}
}
