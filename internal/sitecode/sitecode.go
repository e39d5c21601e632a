// Package sitecode draws, reads and checks the codes of people on site: three groups of four letters and digits, such as
// k7m2-9fqh-x3wr. The first group says which code it is, and the others are its secret of 40 bits, of which hubs and edges
// keep only a slow, salted hash (PBKDF2 with SHA-256). It starts no goroutine and persists nothing.
package sitecode

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"

	"skerry/fleet"
)

const (
	// alphabet has 32 characters, and none that is easily taken for another.
	alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	group    = 4
	letters  = 3 * group

	// Rounds of a new hash: 80 ms on a server's core (BenchmarkMatches), and less than two seconds on a small board.
	Rounds = 200_000
	// MaxRounds bounds the rounds of a hash that a hub delivers.
	MaxRounds = 2_000_000
	saltBytes = 16
	hashBytes = sha256.Size
)

// Draw returns a new code, its id, and the hash of its secret.
func Draw() (text, id string, h fleet.SiteCodeHash, err error) {
	raw := make([]byte, letters)
	rand.Read(raw) // never fails
	for i, b := range raw {
		raw[i] = alphabet[b%byte(len(alphabet))] // 256 is a multiple of 32: each is as likely
	}
	code := string(raw)
	h = fleet.SiteCodeHash{Salt: make([]byte, saltBytes), Rounds: Rounds}
	rand.Read(h.Salt)
	h.Hash, err = HashSecret(code[group:], h)
	return code[:group] + "-" + code[group:2*group] + "-" + code[2*group:], code[:group], h, err
}

// Parse reads a code as a person types it: in capitals or not, with dashes and blanks or without, and with o, i and l for
// the digits that look like them. An error does not show the code.
func Parse(text string) (id, secret string, err error) {
	var code strings.Builder
	for _, r := range strings.ToLower(text) {
		switch r {
		case '-', ' ', '\t', '\r', '\n':
			continue
		case 'o':
			r = '0'
		case 'i', 'l':
			r = '1'
		}
		if !strings.ContainsRune(alphabet, r) || code.Len() == letters {
			return "", "", badCode()
		}
		code.WriteRune(r)
	}
	if code.Len() != letters {
		return "", "", badCode()
	}
	return code.String()[:group], code.String()[group:], nil
}

func badCode() error {
	return fleet.Errorf(fleet.CodeInvalid, "read the site code: it is not three groups of four letters and digits, such as k7m2-9fqh-x3wr")
}

// CheckHash returns what is wrong with a hash that was delivered.
func CheckHash(h fleet.SiteCodeHash) error {
	if len(h.Salt) != saltBytes || len(h.Hash) != hashBytes || h.Rounds < 1 || h.Rounds > MaxRounds {
		return fleet.Errorf(fleet.CodeInvalid, "check the hash of a site code: a salt of %d bytes, a hash of %d bytes, %d rounds", len(h.Salt), len(h.Hash), h.Rounds)
	}
	return nil
}

// Matches reports whether a secret is the one of a hash. It takes as long for a wrong one as for the right one.
func Matches(secret string, h fleet.SiteCodeHash) bool {
	hash, err := HashSecret(secret, h)
	return err == nil && subtle.ConstantTimeCompare(hash, h.Hash) == 1
}

// HashSecret derives the hash of a secret, with the salt and the rounds of h.
func HashSecret(secret string, h fleet.SiteCodeHash) ([]byte, error) {
	hash, err := pbkdf2.Key(sha256.New, secret, h.Salt, h.Rounds, hashBytes)
	if err != nil {
		return nil, fmt.Errorf("hash a site code: %w", err)
	}
	return hash, nil
}

// IsID reports whether a text can be the id of a code.
func IsID(s string) bool { return len(s) == group && strings.Trim(s, alphabet) == "" }
