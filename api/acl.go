package api

import (
	"encoding/json"
	"time"

	"skerry/fleet"
	"skerry/fleet/acl"
)

// ACLBootstrapRequest makes the first management token.
type ACLBootstrapRequest struct {
	BootstrapSecret string // a UUID that becomes the secret; "": the hub draws one
}

// ACLPolicyStub is a policy in a list.
type ACLPolicyStub struct {
	Name        string
	Description string
	JobACL      *fleet.JobACL `json:",omitempty"`
	CreateIndex fleet.Index
	ModifyIndex fleet.Index
}

// ACLTokenRequest creates or changes a token.
type ACLTokenRequest struct {
	fleet.ACLToken
	// ExpirationTTL is the time until a new token ends, as text ("8h") or in nanoseconds.
	ExpirationTTL json.RawMessage `json:",omitempty"`
}

// OneTimeToken lets its bearer have the secret of a token once, until ExpiresAt.
type OneTimeToken struct {
	OneTimeSecretID string
	AccessorID      string
	ExpiresAt       time.Time
	CreateIndex     fleet.Index
	ModifyIndex     fleet.Index
}

// OneTimeTokenAnswer answers the request for a one-time token.
type OneTimeTokenAnswer struct{ OneTimeToken OneTimeToken }

// OneTimeTokenExchange exchanges a one-time token.
type OneTimeTokenExchange struct{ OneTimeSecretID string }

// ACLTokenAnswer answers an exchange with the token and its secret.
type ACLTokenAnswer struct{ Token fleet.ACLToken }

// ACLWhy explains what a token may do with an object. Needs says what was asked, Grant is a rule that would allow it; "": no
// policy can.
type ACLWhy struct {
	AccessorID string
	Policies   []string
	Needs      string
	Grant      string
	acl.Explanation
}

// ACLAuthMethodStub is an auth method in the list, which everybody may read who wants to log in.
type ACLAuthMethodStub struct {
	Name        string
	Type        string
	Default     bool
	CreateIndex fleet.Index
	ModifyIndex fleet.Index
}

// ACLBindingRuleStub is a binding rule in a list.
type ACLBindingRuleStub struct {
	ID          string
	Description string
	AuthMethod  string
	CreateIndex fleet.Index
	ModifyIndex fleet.Index
}

// ACLAuthMethodRequest creates or changes an auth method.
type ACLAuthMethodRequest struct {
	fleet.ACLAuthMethod
	Config *ACLAuthMethodConfigRequest
}

// ACLAuthMethodConfigRequest is the configuration of an auth method. OIDCClientAssertion is Nomad's and is refused.
type ACLAuthMethodConfigRequest struct {
	fleet.ACLAuthMethodConfig
	OIDCClientAssertion json.RawMessage `json:",omitempty"`
}

// ACLLoginRequest exchanges a JWT that somebody else has signed for a token.
type ACLLoginRequest struct {
	AuthMethodName string
	LoginToken     string
}

// ACLOIDCAuthURLRequest begins a login at an OIDC provider.
type ACLOIDCAuthURLRequest struct {
	AuthMethodName string
	RedirectURI    string // where the provider sends the person back to
	ClientNonce    string // drawn by the client
}

// ACLOIDCAuthURLAnswer says where the person has to go.
type ACLOIDCAuthURLAnswer struct{ AuthURL string }

// ACLOIDCCompleteAuthRequest exchanges what the provider has added to RedirectURI for a token. The other fields are those
// of the ACLOIDCAuthURLRequest.
type ACLOIDCCompleteAuthRequest struct {
	AuthMethodName string
	RedirectURI    string
	ClientNonce    string
	State          string
	Code           string
	Iss            string
}
