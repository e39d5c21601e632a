// Package workload signs and verifies the identities of workloads: tokens (JWT, RS256) that say which task of which
// allocation somebody is, with Nomad's claims.
//
// The hub's gateway signs for the edges that have the allocations. hub/access verifies what a request shows and says whether
// it counts, and hub/api publishes the public keys. The keys are those of package secrets, in the replicated state. Edges sign
// tokens of their own tasks (ES256) while no hub is in reach. The package starts no goroutine and persists nothing.
package workload

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"skerry/fleet"
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
	Task      string        `json:"nomad_task,omitempty"`
	Service   string        `json:"nomad_service,omitempty"` // in the place of the task

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

// SignIdentity signs a token for an identity of a task or a service.
func (s *Signer) SignIdentity(ctx context.Context, a *fleet.Alloc, w *fleet.OwnedIdentity) (Token, error) {
	now := s.Now().Unix()
	t := Token{Claims: Claims{
		Issuer: s.Issuer, Subject: a.IdentitySubject(w.Owner(), w.Name), Audience: w.Audience, IssuedAt: now, NotBefore: now, ID: fleet.NewUUID(nil),
		Namespace: a.Namespace, JobID: a.JobOfIdentity(), AllocID: a.ID, Service: w.Service,
	}}
	if w.Service == "" {
		t.Task = w.Task
	}
	if w.TTL > 0 {
		t.Expires = now + Seconds(w.TTL)
	}
	keyID, key, err := s.Key(ctx)
	if err != nil {
		return Token{}, err
	}
	t.KeyID = keyID
	t.Text, err = signClaims(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: keyID}}, t.Claims)
	if err != nil {
		return Token{}, fleet.Errorf(fleet.CodeInternal, "sign identity %s of %s: %w", w.Name, w.Owner(), err)
	}
	return t, nil
}

// Seconds is how long a token of an identity lasts, in the unit of its claims.
func Seconds(ttl time.Duration) int64 { return int64(max(ttl, time.Second) / time.Second) }

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

// Verify returns the claims of a token that the key with its key id has signed. CodeForbidden: it has not, or keyOf finds
// none. The caller checks the claims.
func Verify(text string, keyOf func(keyID string) (crypto.PublicKey, error)) (Claims, error) {
	var c Claims
	if len(text) > maxToken {
		return c, Refusal("it has %d bytes: at most %d are allowed", len(text), maxToken)
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		return c, Refusal("it is not signed with %s, or by an edge with %s, or cannot be read", Algorithm, nodekey.Algorithm)
	}
	keyID := signed.Signatures[0].Header.KeyID
	node, _ := nodekey.NodeOf(keyID)
	public, err := keyOf(keyID)
	if err != nil {
		return c, err
	}
	payload, err := signed.Verify(public)
	if err != nil {
		return c, Refusal("its signature is not of the key %s", keyID)
	}
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, Refusal("its claims cannot be read")
	}
	c.KeyID, c.SignedBy = keyID, node
	return c, nil
}

// Refusal returns the error for a token that is not accepted.
func Refusal(format string, args ...any) *fleet.Error {
	e := fleet.Errorf(fleet.CodeForbidden, format, args...)
	return fleet.Errorf(fleet.CodeForbidden, "workload identity refused: %s", e.Message)
}

// PublicKey verifies tokens with its id.
type PublicKey struct {
	ID  string
	Key crypto.PublicKey
}

// KeySet returns public keys in the form that verifiers read (RFC 7517).
func KeySet(keys []PublicKey) jose.JSONWebKeySet {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range keys {
		algorithm := Algorithm
		if _, ofEdge := k.Key.(*ecdsa.PublicKey); ofEdge {
			algorithm = nodekey.Algorithm
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Key, KeyID: k.ID, Algorithm: algorithm, Use: "sig"})
	}
	return set
}
