// Package workload signs and verifies the identities of workloads: tokens (JWT, RS256) that say which task of which
// allocation somebody is, with Nomad's claims.
//
// The hub's gateway signs for the edges that have the allocations. hub/access verifies what a request shows, and hub/api
// publishes the public keys. The keys are those of package secrets, in the replicated state. Edges sign tokens of their own
// tasks (ES256) while no hub is in reach: nodes.go publishes their keys, and says which of their tokens count. The package
// starts no goroutine and persists nothing.
package workload

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"slices"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto/nodekey"
)

// Algorithm is the only one that tokens are signed with, and accepted by.
const Algorithm = string(jose.RS256)

// maxToken bounds a token that is verified, in bytes.
const maxToken = 8 << 10

// Claims are what a token says, in Nomad's shape. Times are in seconds since 1970.
type Claims struct {
	Issuer    string        `json:"iss,omitempty"`
	Subject   string        `json:"sub"`
	Audience  audience      `json:"aud,omitempty"`
	IssuedAt  int64         `json:"iat"`
	NotBefore int64         `json:"nbf"`
	Expires   int64         `json:"exp,omitempty"` // 0: never
	ID        string        `json:"jti"`
	Namespace string        `json:"nomad_namespace"`
	JobID     fleet.JobID   `json:"nomad_job_id"`
	AllocID   fleet.AllocID `json:"nomad_allocation_id"`
	Task      string        `json:"nomad_task"`

	// Node and Offline are in tokens that an edge has signed while no hub was in reach.
	Node    fleet.NodeID `json:"skerry_node_id,omitempty"`
	Offline bool         `json:"skerry_offline,omitempty"`

	KeyID    string       `json:"-"` // in the token's header
	SignedBy fleet.NodeID `json:"-"` // whose edge has signed it, by its key; "": a hub
}

// audience is for whom a token is. A single one is a text, as in Nomad.
type audience []string

// MarshalJSON writes a list, or a text for a single one.
func (a audience) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]string(a))
}

// UnmarshalJSON reads a list or a text.
func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(a))
}

// Signer signs tokens. It is safe for concurrent use.
type Signer struct {
	// Key returns the key that signs, and its id.
	Key    func(ctx context.Context) (id string, key *rsa.PrivateKey, err error)
	Issuer string // "": tokens name none
	Now    func() time.Time
}

// Token is a signed token with what is known of it.
type Token struct {
	Text string
	Claims
}

// SignIdentity signs a token for an identity of a task.
func (s *Signer) SignIdentity(ctx context.Context, a *fleet.Alloc, task string, w *fleet.WorkloadIdentity) (Token, error) {
	now := s.Now().Unix()
	t := Token{Claims: Claims{
		Issuer: s.Issuer, Subject: a.IdentitySubject(task, w.Name), Audience: w.Audience, IssuedAt: now, NotBefore: now, ID: fleet.NewUUID(nil),
		Namespace: a.Namespace, JobID: a.JobOfIdentity(), AllocID: a.ID, Task: task,
	}}
	if w.TTL > 0 {
		t.Expires = now + seconds(w.TTL)
	}
	keyID, key, err := s.Key(ctx)
	if err != nil {
		return Token{}, err
	}
	t.KeyID = keyID
	t.Text, err = signClaims(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: keyID}}, t.Claims)
	if err != nil {
		return Token{}, fleet.Errorf(fleet.CodeInternal, "sign identity %s of task %s: %w", w.Name, task, err)
	}
	return t, nil
}

// seconds is how long a token of an identity lasts, in the unit of its claims.
func seconds(ttl time.Duration) int64 { return int64(max(ttl, time.Second) / time.Second) }

func signClaims(key jose.SigningKey, c Claims) (string, error) {
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// IsToken reports whether a text has the form of a token: three parts with dots between them.
func IsToken(text string) bool { return strings.Count(text, ".") == 2 }

// Verify returns the claims of a token that a key of the state has signed. CodeForbidden: none has. The caller checks the
// claims, and reads from v what they depend on.
func Verify(v *state.View, text string) (Claims, error) {
	var c Claims
	if len(text) > maxToken {
		return c, refusal("it has %d bytes: at most %d are allowed", len(text), maxToken)
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		return c, refusal("it is not signed with %s, or by an edge with %s, or cannot be read", Algorithm, nodekey.Algorithm)
	}
	keyID := signed.Signatures[0].Header.KeyID
	node, ofEdge := nodekey.NodeOf(keyID)
	var public any
	if ofEdge {
		public, err = announcedKey(v, node, keyID)
	} else {
		public, err = publicKey(v, keyID)
	}
	if err != nil {
		return c, err
	}
	payload, err := signed.Verify(public)
	if err != nil {
		return c, refusal("its signature is not of the key %s", keyID)
	}
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, refusal("its claims cannot be read")
	}
	c.KeyID, c.SignedBy = keyID, node
	return c, nil
}

// publicKey returns the public half of a signing key.
func publicKey(v *state.View, keyID string) (any, error) {
	row, ok := v.RootKey(keyID)
	if !ok || row.Signing == nil {
		return nil, refusal("its key %.64q is unknown: it is another cluster's, or was removed", keyID)
	}
	public, err := x509.ParsePKIXPublicKey(row.Signing.Public)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the signing key of root key %s: %w", keyID, err)
	}
	return public, nil
}

// refusal returns the error for a token that is not accepted.
func refusal(format string, args ...any) *fleet.Error {
	e := fleet.Errorf(fleet.CodeForbidden, format, args...)
	return fleet.Errorf(fleet.CodeForbidden, "workload identity refused: %s", e.Message)
}

// Check returns the allocation of a token that was verified, if the token counts for this cluster's hubs now: by its time,
// its issuer (that of the hubs, or none) and its audience. CodeForbidden: it does not, or its allocation has ended.
func (c *Claims) Check(v *state.View, now time.Time, issuer string) (*fleet.Alloc, error) {
	issuers := []string{"", issuer}
	if c.SignedBy != "" {
		if _, err := announcedKey(v, c.SignedBy, c.KeyID); err != nil {
			return nil, err
		}
		issuers = []string{nodekey.Issuer("", c.SignedBy), nodekey.Issuer(issuer, c.SignedBy)}
	} else if _, ok := v.RootKey(c.KeyID); !ok {
		return nil, refusal("its key %.64q was removed", c.KeyID)
	}
	switch {
	case c.Expires != 0 && now.Unix() >= c.Expires:
		return nil, refusal("it expired at %s", time.Unix(c.Expires, 0).UTC().Format(time.RFC3339)).
			WithHint("the task has to read its file again: the edge renews it while there is a link")
	case now.Unix()+int64(clockSkew/time.Second) < c.NotBefore:
		return nil, refusal("it is not valid before %s", time.Unix(c.NotBefore, 0).UTC().Format(time.RFC3339)).WithHint("the clocks of the hubs differ")
	case !slices.Contains(issuers, c.Issuer):
		return nil, refusal("its issuer is %.200q, and has to be %q", c.Issuer, issuers[1]).WithHint("set --oidc-issuer to the same URL on all hubs")
	case !slices.Contains(c.Audience, fleet.DefaultAudience):
		return nil, refusal("its audience is not %s", fleet.DefaultAudience).WithHint("use the task's default identity for the hubs")
	}
	a, ok := v.Alloc(c.AllocID)
	switch {
	case !ok:
		return nil, refusal("there is no allocation %.64s", c.AllocID)
	case a.Terminal():
		return nil, refusal("allocation %s has ended", a.ID)
	case isRevoked(v, a.NodeID):
		return nil, refusal("node %s of allocation %s is revoked", a.NodeID, a.ID)
	case a.Namespace != c.Namespace || a.JobOfIdentity() != c.JobID || a.Group() == nil || a.Group().Task(c.Task) == nil:
		return nil, refusal("allocation %s has another job or no task %.64q", a.ID, c.Task)
	}
	if c.SignedBy != "" {
		if err := c.checkOffline(a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func isRevoked(v *state.View, node fleet.NodeID) bool {
	_, revoked := v.Revocation(node)
	return revoked
}

// clockSkew is how far the clocks of hubs may differ.
const clockSkew = time.Minute

// HubKeys returns the public keys of the hubs, by their ids.
func HubKeys(v *state.View) jose.JSONWebKeySet {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for row := range v.RootKeys() {
		if row.Signing == nil {
			continue
		}
		if public, err := x509.ParsePKIXPublicKey(row.Signing.Public); err == nil {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: public, KeyID: row.KeyID, Algorithm: Algorithm, Use: "sig"})
		}
	}
	return set
}
