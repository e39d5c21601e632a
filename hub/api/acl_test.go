package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/access"
	hubapi "skerry/hub/api"
	"skerry/hub/login"
	"skerry/hub/state"
)

// aclHub is a hub with access control, and the clients that ask it.
type aclHub struct {
	tb    testing.TB
	hub   *fakeHub
	srv   *httptest.Server
	audit *keptAudit
	reset string // file with the reset index
	now   time.Time
	said  *recorder // of the answers to Nomad's clients; nil: none are kept
}

func newACLHub(tb testing.TB) *aclHub {
	tb.Helper()
	a := &aclHub{tb: tb, hub: &fakeHub{store: state.New(), leader: "hub1"}, audit: &keptAudit{}, reset: filepath.Join(tb.TempDir(), "acl-bootstrap-reset"),
		now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { return a.now }
	served, err := hubapi.New(hubapi.Config{
		State: a.hub.store, Cluster: a.hub, Edges: a.hub, Jobs: a.hub, Garbage: a.hub, Events: a.hub, Drivers: validate.KnownDrivers{Names: []string{"raw_exec"}}, Now: now, Secrets: secretsOf(a.hub), Locks: locksOf(a.hub),
		Access: access.New(access.Config{State: a.hub.store, CatchUp: a.hub.CatchUp, Now: now}), ACLResetFile: a.reset, Audit: a.audit,
		Logins: login.New(login.Config{State: a.hub.store, Wrap: boundSecrets{}, Now: now}),
	})
	if err != nil {
		tb.Fatal(err)
	}
	mustApply(tb, a.hub, state.Hub{Hub: state.HubAddr{ID: "hub1", QUIC: "127.0.0.1:4647", HTTP: "127.0.0.1:4646"}})
	a.srv = httptest.NewServer(served)
	tb.Cleanup(a.srv.Close)
	return a
}

// clientOf returns Nomad's client with a token.
func (a *aclHub) clientOf(secret string) *nomad.Client {
	a.tb.Helper()
	cfg := &nomad.Config{Address: a.srv.URL, SecretID: secret}
	if a.said != nil {
		cfg.HttpClient = &http.Client{Transport: a.said}
	}
	c, err := nomad.NewClient(cfg)
	if err != nil {
		a.tb.Fatal(err)
	}
	return c
}

// mustBootstrap turns access control on, and returns the client with the management token.
func (a *aclHub) mustBootstrap() (*nomad.Client, *nomad.ACLToken) {
	a.tb.Helper()
	token, _, err := a.clientOf("").ACLTokens().Bootstrap(nil)
	if err != nil {
		a.tb.Fatal(err)
	}
	return a.clientOf(token.SecretID), token
}

// mustMake makes a client token with policies and roles.
func (a *aclHub) mustMake(c *nomad.Client, token *nomad.ACLToken) (*nomad.Client, *nomad.ACLToken) {
	a.tb.Helper()
	token.Type = fleet.ACLTokenClient
	made, _, err := c.ACLTokens().Create(token, nil)
	if err != nil {
		a.tb.Fatal(err)
	}
	return a.clientOf(made.SecretID), made
}

func mustFailWith(tb testing.TB, err error, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			tb.Errorf("error %v, not %q", err, part)
		}
	}
}

func mustSucceed(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestACLBootstrap(t *testing.T) {
	a := newACLHub(t)
	anybody := a.clientOf("")
	_, _, err := anybody.ACLPolicies().List(nil)
	mustFailWith(t, err, "400", "ACL support disabled")
	_, _, err = anybody.Jobs().List(nil)
	mustSucceed(t, err)
	_, _, err = anybody.ACLTokens().BootstrapOpts("no uuid", nil)
	mustFailWith(t, err, "400", "not a UUID")
	c, token := a.mustBootstrap()
	if token.Type != "management" || token.Name != "Bootstrap Token" || !token.Global || token.CreateIndex == 0 || token.AccessorID == "" {
		t.Errorf("the bootstrap token: %+v", token)
	}
	_, _, err = c.Jobs().List(nil)
	mustSucceed(t, err)
	_, _, err = anybody.Jobs().List(nil)
	mustFailWith(t, err, "403", "Permission denied")
	_, _, err = a.clientOf("11111111-1111-4111-8111-111111111111").Jobs().List(nil)
	mustFailWith(t, err, "403", "ACL token not found", "it is another cluster's, or was deleted or has ended")
	_, err = anybody.Status().Leader()
	mustSucceed(t, err)

	before := a.hub.index
	_, _, err = anybody.ACLTokens().Bootstrap(nil)
	if a.hub.index != before {
		t.Error("a refused bootstrap is in the log")
	}
	reset := fmt.Sprintf("reset index: %d", token.CreateIndex)
	mustFailWith(t, err, "ACL bootstrap already done", reset)
	mustSucceed(t, os.WriteFile(a.reset, []byte("soon"), 0o600))
	_, _, err = anybody.ACLTokens().Bootstrap(nil)
	mustFailWith(t, err, "read the reset index")
	mustSucceed(t, os.WriteFile(a.reset, fmt.Appendln(nil, token.CreateIndex), 0o600))
	const chosen = "22222222-2222-4222-8222-222222222222"
	second, _, err := anybody.ACLTokens().BootstrapOpts(chosen, nil)
	if err != nil || second.SecretID != chosen {
		t.Fatalf("the second bootstrap: %+v, %v", second, err)
	}
	if _, err := os.Stat(a.reset); !os.IsNotExist(err) {
		t.Errorf("the reset file is still there: %v", err)
	}
	_, _, err = anybody.ACLTokens().Bootstrap(nil)
	mustFailWith(t, err, "already done")
}

func TestACLPoliciesAndRoles(t *testing.T) {
	a := newACLHub(t)
	c, _ := a.mustBootstrap()
	_, err := c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "read", Description: "d", Rules: `namespace "default" { policy = "read" }`}, nil)
	mustSucceed(t, err)
	_, err = c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "write", Rules: `namespace "default" { policy = "write" }`}, nil)
	mustSucceed(t, err)
	for rules, message := range map[string]string{
		"namespace \"default\" {\n  policy = \"fly\"\n}": "policy:2:12: policy \"fly\"", "": "it has no rule", `local { policy = "scale" }`: "policy:1:18: policy \"scale\"",
	} {
		_, err := c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "bad", Rules: rules}, nil)
		mustFailWith(t, err, "400", message)
	}
	_, err = c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "bad", Rules: `node { policy = "read" }`, JobACL: &nomad.JobACL{JobID: "x"}}, nil)
	mustFailWith(t, err, "does not name a namespace")
	policy, _, err := c.ACLPolicies().Info("read", nil)
	if err != nil || policy.Description != "d" || policy.Rules == "" || policy.CreateIndex == 0 {
		t.Errorf("the policy: %+v, %v", policy, err)
	}
	_, _, err = c.ACLPolicies().Info("none", nil)
	mustFailWith(t, err, "404")

	role, _, err := c.ACLRoles().Create(&nomad.ACLRole{Name: "readers", Policies: []*nomad.ACLRolePolicyLink{{Name: "read"}}}, nil)
	if err != nil || role.ID == "" || role.CreateIndex == 0 {
		t.Fatalf("the role: %+v, %v", role, err)
	}
	_, _, err = c.ACLRoles().Create(&nomad.ACLRole{Name: "readers", Policies: []*nomad.ACLRolePolicyLink{{Name: "read"}}}, nil)
	mustFailWith(t, err, "409", "has this name")
	_, _, err = c.ACLRoles().Create(&nomad.ACLRole{Name: "none"}, nil)
	mustFailWith(t, err, "400", "no policy")
	_, _, err = c.ACLRoles().Create(&nomad.ACLRole{Name: "none", Policies: []*nomad.ACLRolePolicyLink{{Name: "gone"}}}, nil)
	mustFailWith(t, err, "400", `no policy "gone"`)

	reader, made := a.mustMake(c, &nomad.ACLToken{Name: "r", Roles: []*nomad.ACLTokenRoleLink{{Name: "readers"}}})
	if len(made.Roles) != 1 || made.Roles[0].ID != role.ID {
		t.Errorf("the role by its name: %+v", made.Roles)
	}
	own, _, err := reader.ACLPolicies().Self(nil)
	if err != nil || len(own) != 1 || own[0].Name != "read" {
		t.Errorf("own policies: %+v, %v", own, err)
	}
	listed, _, err := reader.ACLPolicies().List(nil)
	if err != nil || len(listed) != 1 || listed[0].Name != "read" {
		t.Errorf("policies of a client: %+v, %v", listed, err)
	}
	_, _, err = reader.ACLPolicies().Info("read", nil)
	mustSucceed(t, err)
	_, _, err = reader.ACLPolicies().Info("write", nil)
	mustFailWith(t, err, "403")
	_, err = reader.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "read", Rules: `namespace "*" { policy = "write" }`}, nil)
	mustFailWith(t, err, "403")
	_, err = reader.ACLPolicies().Delete("read", nil)
	mustFailWith(t, err, "403")
	roles, _, err := reader.ACLRoles().List(nil)
	if err != nil || len(roles) != 1 || roles[0].Name != "readers" {
		t.Errorf("roles of a client: %+v, %v", roles, err)
	}
	_, _, err = reader.ACLRoles().GetByName("readers", nil)
	mustSucceed(t, err)
	_, _, err = reader.ACLRoles().Get("other", nil)
	mustFailWith(t, err, "403")

	_, _, err = reader.Jobs().List(nil)
	mustSucceed(t, err)
	_, _, err = reader.Jobs().List(&nomad.QueryOptions{Namespace: "other"})
	mustFailWith(t, err, "403", "Permission denied")
	role.Policies = []*nomad.ACLRolePolicyLink{{Name: "write"}}
	changed, _, err := c.ACLRoles().Update(role, nil)
	if err != nil || changed.CreateIndex != role.CreateIndex || changed.ModifyIndex <= role.ModifyIndex {
		t.Errorf("the changed role: %+v, %v", changed, err)
	}
	_, err = c.ACLRoles().Delete(role.ID, nil)
	mustSucceed(t, err)
	_, err = c.ACLRoles().Delete(role.ID, nil)
	mustFailWith(t, err, "404")
	_, _, err = reader.Jobs().List(nil)
	mustFailWith(t, err, "403")
	_, err = c.ACLPolicies().Delete("read", nil)
	mustSucceed(t, err)
}

// putWith puts a body with a token.
func (a *aclHub) putWith(secret, path, body string) (status int, said string) {
	a.tb.Helper()
	req, err := http.NewRequestWithContext(a.tb.Context(), http.MethodPut, a.srv.URL+path, strings.NewReader(body))
	mustSucceed(a.tb, err)
	req.Header.Set("X-Nomad-Token", secret)
	resp, err := http.DefaultClient.Do(req)
	mustSucceed(a.tb, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	mustSucceed(a.tb, err)
	return resp.StatusCode, string(b)
}

// TestBadPoliciesAndRoles puts policies that do not parse or are too large, and roles that hold something else than policies: each is
// refused by name, and nothing is stored or changed.
func TestBadPoliciesAndRoles(t *testing.T) {
	a := newACLHub(t)
	c, boot := a.mustBootstrap()
	_, err := c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "read", Rules: `namespace "default" { policy = "read" }`}, nil)
	mustSucceed(t, err)
	role, _, err := c.ACLRoles().Create(&nomad.ACLRole{Name: "readers", Policies: []*nomad.ACLRolePolicyLink{{Name: "read"}}}, nil)
	mustSucceed(t, err)
	large := func(bytes int) string {
		return `{"Rules": "namespace \"default\" { policy = \"read\" }` + strings.Repeat(" ", bytes) + `"}`
	}
	stored := func() string { // a refusal may be in the log
		v := a.hub.store.View()
		now, _ := v.ACLRole(role.ID)
		return fmt.Sprintf("policies of entry %d, roles of entry %d, %+v", v.TableIndex("acl_policies"), v.TableIndex("acl_roles"), now)
	}
	before := stored()
	for _, test := range []struct{ path, body, says string }{
		{"/v1/acl/role", `{"Name": "nested", "Policies": [{"Name": "read"}], "Roles": [{"Name": "readers"}]}`, "unknown or unsupported keys: Roles"},
		{"/v1/acl/role", `{"Name": "nested", "Policies": [{"Name": "read", "Roles": [{"Name": "readers"}]}]}`, "unknown or unsupported keys: Policies.Roles"},
		{"/v1/acl/role", `{"Name": "nested", "Policies": [{"Name": "readers"}]}`, `no policy "readers"`},
		{"/v1/acl/role", `{"Name": "nested", "Policies": [{"Name": "read"}, {"Name": "gone"}]}`, `no policy "gone"`},
		{"/v1/acl/role/" + role.ID, `{"Name": "readers", "Roles": [{"ID": "` + role.ID + `"}]}`, "unknown or unsupported keys: Roles"},
		{"/v1/acl/role/" + role.ID, `{"Name": "readers", "Policies": [{"Name": "gone"}]}`, `no policy "gone"`},
		{"/v1/acl/policy/broken", `{"Rules": "namespace \"default\" {\n  policy = \"read"}`, "policy:2:17: Unterminated template string"},
		{"/v1/acl/policy/read", `{"Rules": "namespace \"default\" {\n  policy = \"fly\"\n}"}`, "policy:2:12: policy \"fly\""},
		{"/v1/acl/policy/large", large(10 << 20), "it is larger than 4 MiB"},
		{"/v1/acl/policy/large", large(300 << 10), "at most 262144 are allowed"},
		{"/v1/acl/policy/read", large(10 << 20), "it is larger than 4 MiB"},
	} {
		if status, said := a.putWith(boot.SecretID, test.path, test.body); status != http.StatusBadRequest || !strings.Contains(said, test.says) {
			t.Errorf("%s %.100s: %d %.300s", test.path, test.body, status, said)
		}
	}
	if after := stored(); after != before {
		t.Errorf("the state has changed: %s, and it was: %s", after, before)
	}
}

func TestACLTokens(t *testing.T) {
	a := newACLHub(t)
	c, boot := a.mustBootstrap()
	_, err := c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "read", Rules: `namespace "default" { policy = "read" }`}, nil)
	mustSucceed(t, err)
	for message, bad := range map[string]*nomad.ACLToken{
		"needs a policy or a role":              {Type: "client"},
		"its type is \"\"":                      {Policies: []string{"read"}},
		"has neither policies nor roles":        {Type: "management", Policies: []string{"read"}},
		"there is no role \"none\"":             {Type: "client", Roles: []*nomad.ACLTokenRoleLink{{Name: "none"}}},
		"it cannot end after 1s: at least 1m0s": {Type: "client", Policies: []string{"read"}, ExpirationTTL: time.Second},
	} {
		_, _, err := c.ACLTokens().Create(bad, nil)
		mustFailWith(t, err, "400", message)
	}
	reader, made := a.mustMake(c, &nomad.ACLToken{Name: "ci", Policies: []string{"read"}, ExpirationTTL: time.Hour})
	if made.SecretID == "" || made.ExpirationTime == nil || !made.ExpirationTime.Equal(a.now.Add(time.Hour)) {
		t.Errorf("the token: %+v", made)
	}
	self, _, err := reader.ACLTokens().Self(nil)
	if err != nil || self.AccessorID != made.AccessorID || self.SecretID != made.SecretID {
		t.Errorf("its own token: %+v, %v", self, err)
	}
	read, _, err := c.ACLTokens().Info(made.AccessorID, nil)
	if err != nil || read.SecretID != "" || read.Name != "ci" {
		t.Errorf("the token for others: %+v, %v", read, err)
	}
	_, _, err = reader.ACLTokens().Info(boot.AccessorID, nil)
	mustFailWith(t, err, "403")
	_, _, err = reader.ACLTokens().List(nil)
	mustFailWith(t, err, "403")
	list, _, err := c.ACLTokens().List(nil)
	if err != nil || len(list) != 2 || !slices.ContainsFunc(list, func(s *nomad.ACLTokenListStub) bool { return s.AccessorID == made.AccessorID }) {
		t.Errorf("the list: %+v, %v", list, err)
	}
	if status, body := mustAnswer(t, http.MethodGet, a.srv.URL+"/v1/acl/tokens", ""); status != http.StatusForbidden || strings.Contains(body, made.AccessorID) {
		t.Errorf("the list for anybody: %d %s", status, body)
	}
	read.Name, read.Policies = "ci2", []string{"read", "write"}
	changed, _, err := c.ACLTokens().Update(read, nil)
	if err != nil || changed.Name != "ci2" || len(changed.Policies) != 2 || changed.SecretID != "" {
		t.Errorf("the changed token: %+v, %v", changed, err)
	}
	read.SecretID = boot.SecretID
	_, _, err = c.ACLTokens().Update(read, nil)
	mustFailWith(t, err, "its secret cannot be changed")
	read.SecretID, read.Global = "", true
	_, _, err = c.ACLTokens().Update(read, nil)
	mustFailWith(t, err, "Global cannot be changed")
	uploaded, _, err := c.ACLTokens().Upload(&nomad.ACLToken{
		AccessorID: "33333333-3333-4333-8333-333333333333", SecretID: "44444444-4444-4444-8444-444444444444", Type: "client", Policies: []string{"read"}}, nil)
	if err != nil || uploaded.SecretID == "" {
		t.Errorf("an uploaded token: %+v, %v", uploaded, err)
	}
	_, _, err = a.clientOf("44444444-4444-4444-8444-444444444444").ACLTokens().Self(nil)
	mustSucceed(t, err)

	a.now = a.now.Add(time.Hour)
	_, _, err = reader.Jobs().List(nil)
	mustFailWith(t, err, "403", "ACL token expired")
	_, err = c.ACLTokens().Delete(made.AccessorID, nil)
	mustSucceed(t, err)
	_, _, err = reader.Jobs().List(nil)
	mustFailWith(t, err, "403", "ACL token not found")
}

func TestOneTimeTokens(t *testing.T) {
	a := newACLHub(t)
	c, boot := a.mustBootstrap()
	made, _, err := c.ACLTokens().UpsertOneTimeToken(nil)
	if err != nil || made.AccessorID != boot.AccessorID || !made.ExpiresAt.Equal(a.now.Add(10*time.Minute)) {
		t.Fatalf("the one-time token: %+v, %v", made, err)
	}
	anybody := a.clientOf("")
	_, _, err = anybody.ACLTokens().UpsertOneTimeToken(nil)
	mustFailWith(t, err, "403")
	before := a.hub.index
	_, _, err = anybody.ACLTokens().ExchangeOneTimeToken("x", nil)
	if a.hub.index != before {
		t.Error("the exchange of an unknown token is in the log")
	}
	mustFailWith(t, err, "403", "unknown, was used or has ended")
	got, _, err := anybody.ACLTokens().ExchangeOneTimeToken(made.OneTimeSecretID, nil)
	if err != nil || got.SecretID != boot.SecretID || got.AccessorID != boot.AccessorID {
		t.Errorf("exchanged: %+v, %v", got, err)
	}
	_, _, err = anybody.ACLTokens().ExchangeOneTimeToken(made.OneTimeSecretID, nil)
	mustFailWith(t, err, "403", "was used")
	late, _, err := c.ACLTokens().UpsertOneTimeToken(nil)
	mustSucceed(t, err)
	a.now = a.now.Add(10 * time.Minute)
	_, _, err = anybody.ACLTokens().ExchangeOneTimeToken(late.OneTimeSecretID, nil)
	mustFailWith(t, err, "403", "has ended")
}

func TestACLWhy(t *testing.T) {
	a := newACLHub(t)
	c, _ := a.mustBootstrap()
	_, err := c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "read", Rules: `namespace "def*" { policy = "read" }`}, nil)
	mustSucceed(t, err)
	reader, made := a.mustMake(c, &nomad.ACLToken{Policies: []string{"read"}})
	why := func(c *nomad.Client, accessor, params string) string {
		t.Helper()
		var answer map[string]any
		if _, err := c.Raw().Query("/v1/acl/why?accessor="+accessor+"&"+params, &answer, nil); err != nil {
			return err.Error()
		}
		return fmt.Sprint(answer["Allowed"], answer["Reason"], answer["Grant"], answer["Rules"])
	}
	for _, test := range []struct {
		client *nomad.Client
		params string
		parts  []string
	}{
		{c, "kind=namespace&name=default&capability=read-job", []string{"true", "is granted", "Policy:read", `namespace "def*"`}},
		{reader, "kind=namespace&name=default&capability=submit-job", []string{"false", "does not grant", `capabilities = ["submit-job"]`}},
		{reader, "kind=node&capability=write", []string{"false", "no rule", `node { policy = "write" }`}},
		{reader, "kind=nod&capability=write", []string{"400", `no kind "nod"`}},
		{reader, "kind=namespace&name=default&capability=fly", []string{"400", `no capability "fly"`}},
		{reader, "kind=namespace&capability=read-job", []string{"400", "is no object"}},
	} {
		mustFailWith(t, fmt.Errorf("%s", why(test.client, made.AccessorID, test.params)), test.parts...)
	}
	mustFailWith(t, fmt.Errorf("%s", why(reader, "other", "kind=node&capability=read")), "403")
	mustFailWith(t, fmt.Errorf("%s", why(c, "other", "kind=node&capability=read")), "404")
}

// The audit says whose token a request had, also one that was refused, and the roles that the token had then.
func TestAuditNamesTheToken(t *testing.T) {
	a := newACLHub(t)
	c, boot := a.mustBootstrap()
	_, err := c.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "read", Rules: `namespace "default" { policy = "read" }`}, nil)
	mustSucceed(t, err)
	var roles []*nomad.ACLTokenRoleLink
	for _, name := range []string{"ops", "night"} {
		role, _, err := c.ACLRoles().Create(&nomad.ACLRole{Name: name, Policies: []*nomad.ACLRolePolicyLink{{Name: "read"}}}, nil)
		mustSucceed(t, err)
		roles = append(roles, &nomad.ACLTokenRoleLink{ID: role.ID})
	}
	reader, made := a.mustMake(c, &nomad.ACLToken{Roles: append(roles, roles[0])})
	_, _, err = reader.Nodes().List(nil)
	mustFailWith(t, err, "403")
	_, err = c.ACLRoles().Delete(roles[1].ID, nil)
	mustSucceed(t, err)
	_, _, err = reader.Nodes().List(nil)
	mustFailWith(t, err, "403")
	_, _, err = a.clientOf("").Nodes().List(nil)
	mustFailWith(t, err, "403")
	var got []string
	for _, e := range a.audit.entries {
		got = append(got, fmt.Sprintf("%s %s %d %s %s", e.Verb, strings.Replace(e.Object, roles[1].ID, "ID", 1), e.Status, strings.NewReplacer(boot.AccessorID, "boot", made.AccessorID, "reader").Replace(e.Actor.Accessor), e.Actor.Roles))
	}
	want := []string{
		"PUT /v1/acl/bootstrap 200  []", "PUT /v1/acl/policy/read 200 boot []", "PUT /v1/acl/role 200 boot []", "PUT /v1/acl/role 200 boot []",
		"PUT /v1/acl/token 200 boot []", "GET /v1/nodes 403 reader [night ops]", "DELETE /v1/acl/role/ID 200 boot []", "GET /v1/nodes 403 reader [ops]", "GET /v1/nodes 403  []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// A token is taken from either header, and a bad one is refused even where nobody needs one for the object.
func TestTokenHeaders(t *testing.T) {
	a := newACLHub(t)
	_, boot := a.mustBootstrap()
	for header, value := range map[string]string{"X-Nomad-Token": boot.SecretID, "Authorization": "bearer " + boot.SecretID} {
		req := httptest.NewRequest(http.MethodGet, a.srv.URL+"/v1/acl/tokens", nil)
		req.RequestURI = ""
		req.Header.Set(header, value)
		res, err := http.DefaultClient.Do(req)
		mustSucceed(t, err)
		mustSucceed(t, res.Body.Close())
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", header, res.StatusCode)
		}
	}
}
