// Package nodekey has the keys with which edges sign identities of their own tasks while no hub is in reach, and the names
// that edge and hub give these keys.
//
// edge/identities makes keys and signs with them; the private half never leaves the machine. A node tells the public half in an
// attribute, with which hubs verify. The package has no goroutine and persists nothing.
package nodekey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"skerry/fleet"
)

// Attribute is the attribute by which a node tells its public key, as Key.Public encodes it. It belongs to no class of
// nodes.
const Attribute = "unique.skerry.identity_key"

// Algorithm is that of tokens of edges. Hubs sign with another one, so that a verifier which knows that one alone takes no
// token of an edge.
const Algorithm = "ES256"

const (
	scalarBytes = 32 // of P-256
	publicText  = 87 // characters of a point in base64url
	idPrefix    = "node/"
	idHashBytes = 9
)

// Key signs. It does not change.
type Key struct{ private *ecdsa.PrivateKey }

// New draws a key.
func New() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for identities: %w", err)
	}
	return &Key{private}, nil
}

// Parse reverses Key.Secret.
func Parse(secret []byte) (*Key, error) {
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
	if err != nil {
		return nil, fmt.Errorf("read the key for identities: %w", err)
	}
	return &Key{private}, nil
}

// Secret returns the private half, for the disk of the machine.
func (k *Key) Secret() ([]byte, error) { return k.private.Bytes() }

// Public returns the public half as Attribute has it: the point of P-256, uncompressed, in base64url.
func (k *Key) Public() string {
	point, err := k.private.PublicKey.Bytes()
	if err != nil {
		panic(fmt.Sprintf("encode a public key: %v", err)) // New and Parse make keys of P-256 alone
	}
	return base64.RawURLEncoding.EncodeToString(point)
}

// ParsePublic decodes the public half of a key.
func ParsePublic(text string) (*ecdsa.PublicKey, error) {
	if len(text) != publicText {
		return nil, fmt.Errorf("read a key for identities: %d characters, not %d", len(text), publicText)
	}
	point, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("read a key for identities: %w", err)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return nil, fmt.Errorf("read a key for identities: %w", err)
	}
	return public, nil
}

// ID returns the key id of a node's public key. It names the node, so that no other node's key has it.
func ID(node fleet.NodeID, public string) string {
	sum := sha256.Sum256([]byte(public))
	return idPrefix + string(node) + "/" + base64.RawURLEncoding.EncodeToString(sum[:idHashBytes])
}

// NodeOf returns the node of a key id; ok is false for the key of a hub.
func NodeOf(keyID string) (node fleet.NodeID, ok bool) {
	rest, ok := strings.CutPrefix(keyID, idPrefix)
	name, _, found := strings.Cut(rest, "/")
	if !ok || !found || name == "" {
		return "", false
	}
	return fleet.NodeID(name), true
}

// Issuer returns the issuer that tokens of a node's edge name, below the issuer of the hubs ("": they have none).
func Issuer(hubs string, node fleet.NodeID) string {
	return strings.TrimSuffix(hubs, "/") + "/v1/node/" + string(node)
}

// Sign returns the token of a node with these claims, which are JSON (RFC 7515, compact).
func (k *Key) Sign(node fleet.NodeID, claims []byte) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
		Type      string `json:"typ"`
	}{Algorithm, ID(node, k.Public()), "JWT"})
	if err != nil {
		return "", fmt.Errorf("sign an identity: %w", err)
	}
	text := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, k.private, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign an identity: %w", err)
	}
	signature := make([]byte, 2*scalarBytes)
	r.FillBytes(signature[:scalarBytes])
	s.FillBytes(signature[scalarBytes:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
