package engine

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"skerry/api"
	"skerry/chaos/hubclient"
	"skerry/client"
	"skerry/fleet"
)

// managementSecret is the secret of the first token of a run with access control.
const managementSecret = "5ec2e751-0000-4000-8000-0000000000a1"

// operatorPolicy is the policy of the tokens with which users call the hubs, and operatorRules are its rules: what users
// of a run need, and no more.
const (
	operatorPolicy = "operators"
	operatorRules  = `
namespace "default" {
  policy = "write"
  variables {
    path "*" { capabilities = ["write", "read", "list", "destroy"] }
  }
}
node { policy = "write" }
operator { policy = "write" }
`
)

// operatorTTL is for how long a token of a user lasts: users then get another one.
const operatorTTL = 6 * time.Minute

// lesserPolicy is the policy of a token that may do less than users do, by lesserRules.
const (
	lesserPolicy = "lesser"
	lesserRules  = `namespace "default" { capabilities = ["list-scaling-policies"] }`
)

// Access has the tokens of a run with access control. Its methods may be called from any goroutine.
type Access struct {
	lesser fleet.ACLToken // a token that may do less than users do
	marks  *SecretMarks   // get the secrets that are made; may be nil

	mu       sync.Mutex
	operator fleet.ACLToken // the users' token; zero: there is none yet
	former   []fleet.ACLToken
	// revoked are the tokens whose deletion a hub has acknowledged, of the present past of the hubs.
	revoked  []fleet.ACLToken
	restores int // of the hubs
}

// BootstrapAccess turns access control on at a hub, which must lead, and makes the policy and the token of users, and a join token.
// The secrets that it makes, and those that Access makes later, are added to marks, which may be nil.
func BootstrapAccess(ctx context.Context, h hubclient.Hub, marks *SecretMarks) (*Access, error) {
	if _, err := h.BootstrapACL(ctx, managementSecret); err != nil {
		return nil, fmt.Errorf("turn access control on: %w", err)
	}
	if err := h.As(managementSecret).ApplyACLPolicy(ctx, fleet.ACLPolicy{Name: operatorPolicy, Rules: operatorRules}); err != nil {
		return nil, fmt.Errorf("make the policy of users: %w", err)
	}
	a := &Access{marks: marks}
	err := a.Manager(h).ApplyACLPolicy(ctx, fleet.ACLPolicy{Name: lesserPolicy, Rules: lesserRules})
	if err == nil {
		a.lesser, err = a.Manager(h).CreateACLToken(ctx, fleet.ACLToken{Name: "lesser", Type: fleet.ACLTokenClient, Policies: []string{lesserPolicy}}, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("make a token that may do less than users: %w", err)
	}
	marks.AddToken(SecretToken, a.lesser.SecretID)
	join, err := a.Manager(h).CreateJoinToken(ctx, api.CreateTokenRequest{Role: fleet.RoleEdge, Description: "nobody uses it"})
	if err != nil {
		return nil, fmt.Errorf("make a join token: %w", err)
	}
	marks.AddJoinToken(join.Token)
	return a, a.renewOperator(ctx, h)
}

// Manager returns a client of the hub with the management token.
func (a *Access) Manager(h hubclient.Hub) hubclient.Hub { return h.As(managementSecret) }

// ManagementSecret returns the secret of the management token.
func (a *Access) ManagementSecret() string { return managementSecret }

// Operator returns a client of the hub with the token that users have now.
func (a *Access) Operator(h hubclient.Hub) hubclient.Hub {
	a.mu.Lock()
	defer a.mu.Unlock()
	return h.As(a.operator.SecretID)
}

// renewOperator makes another token for the users.
func (a *Access) renewOperator(ctx context.Context, h hubclient.Hub) error {
	t, err := a.Manager(h).CreateACLToken(ctx, fleet.ACLToken{Name: "operator", Type: fleet.ACLTokenClient, Policies: []string{operatorPolicy}}, operatorTTL)
	if err != nil {
		return fmt.Errorf("make a token for users: %w", err)
	}
	a.marks.AddToken(SecretToken, t.SecretID)
	a.mu.Lock()
	if a.operator.SecretID != "" {
		a.former = append(a.former, a.operator)
	}
	a.operator = t
	a.mu.Unlock()
	a.useOneTimeToken(ctx, a.Operator(h))
	return nil
}

// useOneTimeToken makes a one-time token at a hub, and exchanges it. An error does not matter: the next token is tried too.
func (a *Access) useOneTimeToken(ctx context.Context, h hubclient.Hub) {
	var made api.OneTimeTokenAnswer
	if err := h.Call(ctx, http.MethodPost, "/v1/acl/token/onetime", nil, &made); err != nil {
		return
	}
	a.marks.AddToken(SecretOneTime, made.OneTimeToken.OneTimeSecretID)
	_ = h.As("").Call(ctx, http.MethodPost, "/v1/acl/token/onetime/exchange", api.OneTimeTokenExchange{OneTimeSecretID: made.OneTimeToken.OneTimeSecretID}, nil)
}

// revokeOperator deletes the users' token at a hub, while they use it.
func (a *Access) revokeOperator(ctx context.Context, h hubclient.Hub) error {
	a.mu.Lock()
	t := a.operator
	a.mu.Unlock()
	if err := a.Manager(h).DeleteACLToken(ctx, t.AccessorID); err != nil {
		return fmt.Errorf("revoke the users' token: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked = append(a.revoked, t)
	return nil
}

// reviveRevoked forgets the revocations, since the hubs are put back to a copy that may be older.
func (a *Access) reviveRevoked() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked = nil
	a.restores++
}

// pastOfHubs returns a number that changes when the hubs are put back to a copy.
func (a *Access) pastOfHubs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.restores
}

// expiredTokens returns the tokens of users that have ended by their TTL, also the one that they have now.
func (a *Access) expiredTokens(now time.Time) []fleet.ACLToken {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []fleet.ACLToken
	for _, t := range append(slices.Clone(a.former), a.operator) {
		if t.ExpirationTime != nil && now.After(*t.ExpirationTime) {
			out = append(out, t)
		}
	}
	return out
}

// isRevoked reports whether the deletion of a token counts in the present past of the hubs.
func (a *Access) isRevoked(t fleet.ACLToken) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.revoked, func(r fleet.ACLToken) bool { return r.AccessorID == t.AccessorID })
}

// renewIfRefused makes another token for the users if the error of a call says that theirs does not count any more. It
// reports whether it has made one: the call may then be repeated.
func (a *Access) renewIfRefused(ctx context.Context, h hubclient.Hub, err error) bool {
	if a == nil || client.StatusOf(err) != http.StatusForbidden {
		return false
	}
	return a.renewOperator(ctx, h) == nil
}
