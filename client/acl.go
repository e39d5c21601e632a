package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
)

// BootstrapACL makes the first management token, which turns access control on. secret: a UUID; "": the hub draws one.
func (c *Client) BootstrapACL(ctx context.Context, secret string) (fleet.ACLToken, error) {
	return writeRequest[fleet.ACLToken](ctx, c, http.MethodPut, "/v1/acl/bootstrap", nil, api.ACLBootstrapRequest{BootstrapSecret: secret})
}

// ACLPolicies lists the policies that the client's token may read.
func (c *Client) ACLPolicies(ctx context.Context, l List) ([]api.ACLPolicyStub, error) {
	return readList[api.ACLPolicyStub](ctx, c, "/v1/acl/policies", l)
}

// OwnACLPolicies lists the policies that the client's token has.
func (c *Client) OwnACLPolicies(ctx context.Context) ([]api.ACLPolicyStub, error) {
	return readAnswer[[]api.ACLPolicyStub](ctx, c, "/v1/acl/policy/self", nil)
}

// ACLPolicy reads a policy.
func (c *Client) ACLPolicy(ctx context.Context, name string) (fleet.ACLPolicy, error) {
	return readAnswer[fleet.ACLPolicy](ctx, c, "/v1/acl/policy"+joinPath(name), nil)
}

// ApplyACLPolicy creates a policy, or replaces it.
func (c *Client) ApplyACLPolicy(ctx context.Context, p fleet.ACLPolicy) error {
	return c.sendPut(ctx, "/v1/acl/policy"+joinPath(p.Name), nil, p)
}

// DeleteACLPolicy deletes a policy.
func (c *Client) DeleteACLPolicy(ctx context.Context, name string) error {
	return c.sendDelete(ctx, "/v1/acl/policy"+joinPath(name), nil)
}

// ACLTokens lists the tokens, without their secrets.
func (c *Client) ACLTokens(ctx context.Context, l List) ([]fleet.ACLToken, error) {
	return readList[fleet.ACLToken](ctx, c, "/v1/acl/tokens", l)
}

// ACLToken reads a token by its accessor, without its secret; "self": the client's own, with it.
func (c *Client) ACLToken(ctx context.Context, accessor string) (fleet.ACLToken, error) {
	return readAnswer[fleet.ACLToken](ctx, c, "/v1/acl/token"+joinPath(accessor), nil)
}

// CreateACLToken makes a token that ends after ttl; 0: never. The answer has its secret.
func (c *Client) CreateACLToken(ctx context.Context, t fleet.ACLToken, ttl time.Duration) (fleet.ACLToken, error) {
	req := api.ACLTokenRequest{ACLToken: t}
	if ttl != 0 {
		req.ExpirationTTL = json.RawMessage(`"` + ttl.String() + `"`)
	}
	return writeRequest[fleet.ACLToken](ctx, c, http.MethodPut, "/v1/acl/token", nil, req)
}

// UpdateACLToken changes a token's name, type, policies and roles.
func (c *Client) UpdateACLToken(ctx context.Context, t fleet.ACLToken) (fleet.ACLToken, error) {
	return writeRequest[fleet.ACLToken](ctx, c, http.MethodPut, "/v1/acl/token"+joinPath(t.AccessorID), nil, t)
}

// DeleteACLToken deletes a token by its accessor.
func (c *Client) DeleteACLToken(ctx context.Context, accessor string) error {
	return c.sendDelete(ctx, "/v1/acl/token"+joinPath(accessor), nil)
}

// ACLRoles lists the roles that the client's token may read.
func (c *Client) ACLRoles(ctx context.Context, l List) ([]fleet.ACLRole, error) {
	return readList[fleet.ACLRole](ctx, c, "/v1/acl/roles", l)
}

// ACLRole reads a role by its id, or by its name.
func (c *Client) ACLRole(ctx context.Context, id string, byName bool) (fleet.ACLRole, error) {
	path := "/v1/acl/role"
	if byName {
		path += "/name"
	}
	return readAnswer[fleet.ACLRole](ctx, c, path+joinPath(id), nil)
}

// CreateACLRole makes a role.
func (c *Client) CreateACLRole(ctx context.Context, r fleet.ACLRole) (fleet.ACLRole, error) {
	return writeRequest[fleet.ACLRole](ctx, c, http.MethodPut, "/v1/acl/role", nil, r)
}

// UpdateACLRole replaces the role of an id.
func (c *Client) UpdateACLRole(ctx context.Context, r fleet.ACLRole) (fleet.ACLRole, error) {
	return writeRequest[fleet.ACLRole](ctx, c, http.MethodPut, "/v1/acl/role"+joinPath(r.ID), nil, r)
}

// DeleteACLRole deletes a role.
func (c *Client) DeleteACLRole(ctx context.Context, id string) error {
	return c.sendDelete(ctx, "/v1/acl/role"+joinPath(id), nil)
}

// WhyACL explains what the token of an accessor may do with an object.
func (c *Client) WhyACL(ctx context.Context, accessor string, needs acl.Requirement) (api.ACLWhy, error) {
	return readAnswer[api.ACLWhy](ctx, c, "/v1/acl/why", url.Values{
		"accessor": {accessor}, "capability": {string(needs.Capability)}, "kind": {string(needs.Kind)}, "name": {needs.Name}, "path": {needs.Path},
	})
}

// AuthMethods lists the auth methods, also for a client without a token.
func (c *Client) AuthMethods(ctx context.Context, l List) ([]api.ACLAuthMethodStub, error) {
	return readList[api.ACLAuthMethodStub](ctx, c, "/v1/acl/auth-methods", l)
}

// AuthMethod reads an auth method, without its client secret.
func (c *Client) AuthMethod(ctx context.Context, name string) (fleet.ACLAuthMethod, error) {
	return readAnswer[fleet.ACLAuthMethod](ctx, c, "/v1/acl/auth-method"+joinPath(name), nil)
}

// StoreAuthMethod creates an auth method, or changes the one of its name.
func (c *Client) StoreAuthMethod(ctx context.Context, m fleet.ACLAuthMethod) (fleet.ACLAuthMethod, error) {
	return writeRequest[fleet.ACLAuthMethod](ctx, c, http.MethodPut, "/v1/acl/auth-method", nil, m)
}

// DeleteAuthMethod deletes an auth method. The tokens of its logins stay.
func (c *Client) DeleteAuthMethod(ctx context.Context, name string) error {
	return c.sendDelete(ctx, "/v1/acl/auth-method"+joinPath(name), nil)
}

// BindingRules lists the binding rules.
func (c *Client) BindingRules(ctx context.Context, l List) ([]api.ACLBindingRuleStub, error) {
	return readList[api.ACLBindingRuleStub](ctx, c, "/v1/acl/binding-rules", l)
}

// BindingRule reads a binding rule.
func (c *Client) BindingRule(ctx context.Context, id string) (fleet.ACLBindingRule, error) {
	return readAnswer[fleet.ACLBindingRule](ctx, c, "/v1/acl/binding-rule"+joinPath(id), nil)
}

// CreateBindingRule makes a binding rule.
func (c *Client) CreateBindingRule(ctx context.Context, r fleet.ACLBindingRule) (fleet.ACLBindingRule, error) {
	return writeRequest[fleet.ACLBindingRule](ctx, c, http.MethodPut, "/v1/acl/binding-rule", nil, r)
}

// UpdateBindingRule replaces the binding rule of an id.
func (c *Client) UpdateBindingRule(ctx context.Context, r fleet.ACLBindingRule) (fleet.ACLBindingRule, error) {
	return writeRequest[fleet.ACLBindingRule](ctx, c, http.MethodPut, "/v1/acl/binding-rule"+joinPath(r.ID), nil, r)
}

// DeleteBindingRule deletes a binding rule.
func (c *Client) DeleteBindingRule(ctx context.Context, id string) error {
	return c.sendDelete(ctx, "/v1/acl/binding-rule"+joinPath(id), nil)
}

// LogIn exchanges a JWT for a token with its secret.
func (c *Client) LogIn(ctx context.Context, req api.ACLLoginRequest) (fleet.ACLToken, error) {
	return writeRequest[fleet.ACLToken](ctx, c, http.MethodPut, "/v1/acl/login", nil, req)
}

// BeginOIDCLogin returns the URL where a person logs in at an OIDC provider.
func (c *Client) BeginOIDCLogin(ctx context.Context, req api.ACLOIDCAuthURLRequest) (string, error) {
	answer, err := writeRequest[api.ACLOIDCAuthURLAnswer](ctx, c, http.MethodPut, "/v1/acl/oidc/auth-url", nil, req)
	return answer.AuthURL, err
}

// CompleteOIDCLogin exchanges what the provider has sent back for a token with its secret.
func (c *Client) CompleteOIDCLogin(ctx context.Context, req api.ACLOIDCCompleteAuthRequest) (fleet.ACLToken, error) {
	return writeRequest[fleet.ACLToken](ctx, c, http.MethodPut, "/v1/acl/oidc/complete-auth", nil, req)
}

// SiteCodes lists the codes of people on site, without what they type.
func (c *Client) SiteCodes(ctx context.Context, l List) ([]fleet.SiteCode, error) {
	return readList[fleet.SiteCode](ctx, c, "/v1/acl/site-codes", l)
}

// CreateSiteCode makes a site code. The answer has what the person types.
func (c *Client) CreateSiteCode(ctx context.Context, req api.SiteCodeRequest) (api.CreatedSiteCode, error) {
	return writeRequest[api.CreatedSiteCode](ctx, c, http.MethodPut, "/v1/acl/site-code", nil, req)
}

// RevokeSiteCode revokes a site code by its id.
func (c *Client) RevokeSiteCode(ctx context.Context, id string) error {
	return c.sendDelete(ctx, "/v1/acl/site-code"+joinPath(id), nil)
}
