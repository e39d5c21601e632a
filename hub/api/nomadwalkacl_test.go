package api_test

import (
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/login/logintest"
	"skerry/hub/state"
)

// useAccessControl turns access control on, and makes, reads, changes and deletes what it consists of. It returns the
// client with the management token.
func (a *aclHub) useAccessControl() *nomad.Client {
	a.tb.Helper()
	c, _ := a.mustBootstrap()
	a.usePolicies(c)
	a.useTokens(c)
	a.useAuthMethods(c)
	a.useBindingRules(c)
	a.logInAtProvider(c)
	return c
}

func (a *aclHub) mustReturn(_ any, err error) {
	a.tb.Helper()
	mustSucceed(a.tb, err)
}

// usePolicies leaves the policy "read" and the role "readers".
func (a *aclHub) usePolicies(c *nomad.Client) {
	a.tb.Helper()
	for _, name := range []string{"read", "other"} {
		a.mustReturn(c.ACLPolicies().Upsert(&nomad.ACLPolicy{
			Name: name, Description: "reads jobs", Rules: `namespace "default" { policy = "read" }`,
			JobACL: &nomad.JobACL{Namespace: "default", JobID: "shop", Group: "till", Task: "main"},
		}, nil))
	}
	_, _, err := c.ACLPolicies().List(nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLPolicies().Info("read", nil)
	mustSucceed(a.tb, err)
	a.mustReturn(c.ACLPolicies().Delete("other", nil))
	role, _, err := c.ACLRoles().Create(&nomad.ACLRole{Name: "readers", Description: "d", Policies: []*nomad.ACLRolePolicyLink{{Name: "read"}}}, nil)
	mustSucceed(a.tb, err)
	role, _, err = c.ACLRoles().Update(role, nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLRoles().Get(role.ID, nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLRoles().GetByName("readers", nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLRoles().List(nil)
	mustSucceed(a.tb, err)
	role, _, err = c.ACLRoles().Create(&nomad.ACLRole{Name: "short", Policies: []*nomad.ACLRolePolicyLink{{Name: "read"}}}, nil)
	mustSucceed(a.tb, err)
	a.mustReturn(c.ACLRoles().Delete(role.ID, nil))
}

func (a *aclHub) useTokens(c *nomad.Client) {
	a.tb.Helper()
	reader, made := a.mustMake(c, &nomad.ACLToken{
		Name: "ci", Policies: []string{"read"}, Roles: []*nomad.ACLTokenRoleLink{{Name: "readers"}}, ExpirationTTL: time.Hour, Global: true,
	})
	_, _, err := reader.ACLTokens().Self(nil)
	mustSucceed(a.tb, err)
	_, _, err = reader.ACLPolicies().Self(nil)
	mustSucceed(a.tb, err)
	read, _, err := c.ACLTokens().Info(made.AccessorID, nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLTokens().Update(read, nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLTokens().List(nil)
	mustSucceed(a.tb, err)
	once, _, err := reader.ACLTokens().UpsertOneTimeToken(nil)
	mustSucceed(a.tb, err)
	_, _, err = a.clientOf("").ACLTokens().ExchangeOneTimeToken(once.OneTimeSecretID, nil)
	mustSucceed(a.tb, err)
	a.mustReturn(c.ACLTokens().Delete(made.AccessorID, nil))
}

// useAuthMethods leaves the auth method "ci".
func (a *aclHub) useAuthMethods(c *nomad.Client) {
	a.tb.Helper()
	method := loginMethod()
	method.Config.NotBeforeLeeway, method.Config.VerboseLogging = time.Second, true
	made, _, err := c.ACLAuthMethods().Create(method, nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLAuthMethods().Update(made, nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLAuthMethods().Get("ci", nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLAuthMethods().List(nil)
	mustSucceed(a.tb, err)
}

// useBindingRules leaves a rule for the auth method "ci", and logs in.
func (a *aclHub) useBindingRules(c *nomad.Client) {
	a.tb.Helper()
	rule, _, err := c.ACLBindingRules().Create(&nomad.ACLBindingRule{
		AuthMethod: "ci", Description: "builds", Selector: `"ci" in list.groups`, BindType: "policy", BindName: "read",
	}, nil)
	mustSucceed(a.tb, err)
	rule, _, err = c.ACLBindingRules().Update(rule, nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLBindingRules().Get(rule.ID, nil)
	mustSucceed(a.tb, err)
	_, _, err = c.ACLBindingRules().List(nil)
	mustSucceed(a.tb, err)
	mustApply(a.tb, a.hub, state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{ID: "b", AuthMethod: "ci", BindType: fleet.ACLBindRole, BindName: "readers"}})
	_, _, err = a.clientOf("").ACLAuth().Login(&nomad.ACLLoginRequest{AuthMethodName: "ci", LoginToken: a.mustSignJWT(nil)}, nil)
	mustSucceed(a.tb, err)
	a.mustReturn(c.ACLBindingRules().Delete(rule.ID, nil))
}

// logInAtProvider logs somebody in at an OIDC provider.
func (a *aclHub) logInAtProvider(c *nomad.Client) {
	a.tb.Helper()
	provider := logintest.NewProvider(a.tb, func() time.Time { return a.now })
	const callback = "http://localhost:4649/oidc/callback"
	keys := loginMethod()
	keys.Name, keys.Default, keys.Config.JWTValidationPubKeys = "keys", false, nil
	keys.Config.JWKSURL, keys.Config.JWKSCACert = provider.URL+"/keys", provider.CA()
	_, _, err := c.ACLAuthMethods().Create(keys, nil)
	mustSucceed(a.tb, err)
	a.mustReturn(c.ACLAuthMethods().Delete("keys", nil))
	_, _, err = c.ACLAuthMethods().Create(&nomad.ACLAuthMethod{Name: "sso", Type: "OIDC", TokenLocality: "global", MaxTokenTTL: time.Hour, Config: &nomad.ACLAuthMethodConfig{
		OIDCDiscoveryURL: provider.URL, DiscoveryCaPem: []string{provider.CA()}, OIDCClientID: provider.ClientID, OIDCClientSecret: provider.ClientSecret,
		OIDCEnablePKCE: true, OIDCDisableUserInfo: true, OIDCScopes: []string{"groups"},
		SigningAlgs: []string{"EdDSA"}, AllowedRedirectURIs: []string{callback}, ClaimMappings: map[string]string{"sub": "user"},
	}}, nil)
	mustSucceed(a.tb, err)
	for _, rule := range []fleet.ACLBindingRule{{ID: "p", BindType: fleet.ACLBindPolicy, BindName: "read"}, {ID: "r", BindType: fleet.ACLBindRole, BindName: "readers"}} {
		rule.AuthMethod = "sso"
		mustApply(a.tb, a.hub, state.ACLBindingRuleStore{Rule: rule})
	}
	anybody := a.clientOf("")
	begun, _, err := anybody.ACLAuth().GetAuthURL(&nomad.ACLOIDCAuthURLRequest{AuthMethodName: "sso", RedirectURI: callback, ClientNonce: "n"}, nil)
	mustSucceed(a.tb, err)
	back := provider.LogIn(a.tb, begun.AuthURL)
	_, _, err = anybody.ACLAuth().CompleteAuth(&nomad.ACLOIDCCompleteAuthRequest{
		AuthMethodName: "sso", RedirectURI: callback, ClientNonce: "n", State: back.Get("state"), Code: back.Get("code"), Iss: back.Get("iss"),
	}, nil)
	mustSucceed(a.tb, err)
}

// purgeNode purges a node that is gone, and that has an allocation.
func (a *aclHub) purgeNode(c *nomad.Client) {
	a.tb.Helper()
	mustApply(a.tb, a.hub, state.NodeRegister{Node: fleet.Node{
		ID: nodeID, Name: "edge1", Datacenter: "dc1", NodePool: "default", Resources: fleet.Resources{CPU: 4000, MemoryMB: 8192, DiskMB: 10000},
		Drivers: map[string]fleet.DriverInfo{"raw_exec": {Detected: true, Healthy: true}},
	}, Now: 1})
	_, _, err := c.Jobs().Register(exampleJob("web"), nil)
	mustSucceed(a.tb, err)
	mustPlace(a.tb, a.hub, "web")
	n, _ := a.hub.store.View().Node(nodeID)
	mustApply(a.tb, a.hub, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: n.Epoch}}, EvalSeed: "s", Now: 5})
	_, _, err = c.Nodes().Purge(string(nodeID), nil)
	mustSucceed(a.tb, err)
}
