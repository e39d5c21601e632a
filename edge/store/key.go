package store

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"hash"
	"strings"

	"skerry/fleet"
	"skerry/internal/redact"
)

// Key identifies a requested content. Two requests with equal keys get the same content.
type Key struct {
	Source   string            // without the credentials, which are in Options
	Options  map[string]string `json:",omitempty"` // everything else that selects the content, secrets included
	Checksum string            `json:",omitempty"` // "TYPE:HEX"; "" allows any content
}

// String returns the source for people, without the parts that may be secret.
func (k Key) String() string { return redact.Address(k.Source) }

// ID returns the name of the key: a hash, from which no option can be read.
func (k Key) ID() string {
	text, err := json.Marshal(k) // maps are sorted
	if err != nil {
		panic("store: a key of strings has no JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// checksums are the types of checksums, with the number of their hexadecimal digits.
var checksums = []struct {
	kind   string
	length int
	make   func() hash.Hash
}{
	{"md5", 2 * md5.Size, md5.New},
	{"sha1", 2 * sha1.Size, sha1.New},
	{"sha256", 2 * sha256.Size, sha256.New},
	{"sha512", 2 * sha512.Size, sha512.New},
}

// ParseChecksum parses "TYPE:HEX", or HEX alone, whose length implies the type. It returns "TYPE:HEX" in lower case.
// Its errors are fleet.CodeInvalid, or CodeUnsupported for a file of checksums.
func ParseChecksum(text string) (string, error) {
	kind, digits, typed := strings.Cut(strings.ToLower(strings.TrimSpace(text)), ":")
	if !typed {
		kind, digits = "", kind
	}
	if kind == "file" {
		return "", fleet.Errorf(fleet.CodeUnsupported, "checksum %q: files of checksums are not supported", text).
			WithHint("write the checksum itself: sha256:HEX")
	}
	for _, c := range checksums {
		if kind != c.kind && (typed || len(digits) != c.length) {
			continue
		}
		if _, err := hex.DecodeString(digits); err != nil || len(digits) != c.length {
			return "", fleet.Errorf(fleet.CodeInvalid, "checksum %q: %s has %d hexadecimal digits", text, c.kind, c.length)
		}
		return c.kind + ":" + digits, nil
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "checksum %q has no known type", text).
		WithHint("write md5:, sha1:, sha256: or sha512: and the hexadecimal digits")
}

// newHash returns the hash of a checksum that ParseChecksum returned, and its digits.
func newHash(checksum string) (hash.Hash, string) {
	kind, digits, _ := strings.Cut(checksum, ":")
	for _, c := range checksums {
		if c.kind == kind {
			return c.make(), digits
		}
	}
	return nil, ""
}
