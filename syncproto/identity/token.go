package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"log/slog"
	"strings"

	"skerry/fleet"
)

const (
	tokenPrefix = "skr1"
	tokenIDLen  = 8  // characters
	secretBytes = 32 // random ones
	sumBytes    = 4  // of the checksum after the secret
	// maxToken is the longest text that ParseToken accepts, in bytes.
	maxToken = 256
)

var (
	b64       = base64.RawURLEncoding.Strict()
	caHashLen = b64.EncodedLen(sha256.Size)
	secretLen = b64.EncodedLen(secretBytes + sumBytes)
)

// Token lets its holder join a cluster: "skr1.<ca-hash>.<id>.<secret>". CAHash (SHA-256 of the CA's certificate)
// names the cluster, ID the token in it. Secret ends in a checksum over the token, so that a mistyped token is told
// from an unknown one.
type Token struct {
	CAHash [sha256.Size]byte
	ID     string
	Secret string
}

// NewToken generates a token with a random id and secret, for the cluster whose CA certificate (DER) is ca.
func NewToken(ca []byte) Token {
	t := Token{CAHash: sha256.Sum256(ca), ID: strings.ToLower(rand.Text()[:tokenIDLen])}
	secret := make([]byte, secretBytes, secretBytes+sumBytes)
	rand.Read(secret) // never fails
	t.Secret = b64.EncodeToString(append(secret, t.tokenChecksum(secret)...))
	return t
}

// ParseToken parses a token, without surrounding white space, and checks its form and checksum. Errors are
// *fleet.Error with CodeTokenBad.
func ParseToken(s string) (Token, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return Token{}, badToken("it is empty")
	}
	if len(s) > maxToken {
		return Token{}, badToken("it is too long")
	}
	parts := strings.Split(s, ".")
	if parts[0] != tokenPrefix {
		return Token{}, badToken("it does not start with %q", tokenPrefix+".")
	}
	if len(parts) != 4 {
		return Token{}, badToken("it has %d parts, not 4", len(parts))
	}
	hash, err := b64.DecodeString(parts[1])
	if err != nil || len(hash) != sha256.Size {
		return Token{}, badToken("its CA hash is not %d characters of base64url", caHashLen)
	}
	t := Token{CAHash: [sha256.Size]byte(hash), ID: parts[2], Secret: parts[3]}
	if !validTokenID(t.ID) {
		return Token{}, badToken("its id is not %d letters and digits", tokenIDLen)
	}
	secret, err := b64.DecodeString(t.Secret)
	if err != nil || len(secret) != secretBytes+sumBytes {
		return Token{}, badToken("its secret is not %d characters of base64url", secretLen)
	}
	if subtle.ConstantTimeCompare(secret[secretBytes:], t.tokenChecksum(secret[:secretBytes])) != 1 {
		return Token{}, badToken("its check sum is wrong")
	}
	return t, nil
}

// String returns the whole token with its secret. It must not be logged.
func (t Token) String() string {
	return strings.Join([]string{tokenPrefix, b64.EncodeToString(t.CAHash[:]), t.ID, t.Secret}, ".")
}

// LogValue returns the token's id, without the secret.
func (t Token) LogValue() slog.Value { return slog.StringValue(tokenPrefix + "…" + t.ID) }

// Names reports whether ca (DER) is the CA certificate of the token's cluster.
func (t Token) Names(ca []byte) bool { return sha256.Sum256(ca) == t.CAHash }

// HashSecret returns the hash that a cluster stores in place of a token's secret.
func HashSecret(secret string) []byte {
	h := sha256.Sum256([]byte(secret))
	return h[:]
}

// MatchesSecret reports whether hash is that of secret, in constant time.
func MatchesSecret(hash []byte, secret string) bool {
	return subtle.ConstantTimeCompare(hash, HashSecret(secret)) == 1
}

// tokenChecksum returns the checksum over the prefix, CA hash, id and secret.
func (t Token) tokenChecksum(secret []byte) []byte {
	h := sha256.New()
	h.Write([]byte(tokenPrefix))
	h.Write(t.CAHash[:])
	h.Write([]byte(t.ID))
	h.Write(secret)
	return h.Sum(nil)[:sumBytes]
}

// validTokenID reports whether id has the length of a token id and only lower-case letters and digits.
func validTokenID(id string) bool {
	if len(id) != tokenIDLen {
		return false
	}
	for _, r := range id {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return true
}

// badToken returns a CodeTokenBad whose hint says where to copy the token from.
func badToken(format string, args ...any) *fleet.Error {
	return fleet.Errorf(fleet.CodeTokenBad, "read the join token: "+format, args...).
		WithHint("copy the whole line from the hub's join-token file")
}
