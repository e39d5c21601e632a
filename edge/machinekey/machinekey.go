// Package machinekey encrypts what an edge keeps on its disk and nobody may read there, such as variables.
//
// edge.Open makes the key, and gives it to the packages that encrypt. It is in a file of mode 0600 in the data
// directory: it protects backups and copies of single files, not a stolen disk. The package starts no goroutine.
package machinekey

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"

	"skerry/fleet"
)

// Key encrypts with AES-256-GCM.
type Key struct{ aead cipher.AEAD }

const (
	keyBytes  = 32
	keyPrefix = "skerry-machine-key-1 "
	// sealVersion is the first byte of what Seal returns. A nonce and the encrypted bytes follow.
	sealVersion = 1
)

// New draws a key, and returns it with the text of its file.
func New() (*Key, []byte) {
	raw := make([]byte, keyBytes)
	rand.Read(raw) // never fails
	k, err := newKey(raw)
	if err != nil {
		panic(fmt.Sprintf("make a key of %d bytes: %v", len(raw), err)) // the length is right
	}
	return k, []byte(keyPrefix + base64.StdEncoding.EncodeToString(raw) + "\n")
}

// Parse reads the text of a key's file.
func Parse(text []byte) (*Key, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(string(text)), keyPrefix)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(raw) != keyBytes {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the machine's key: it is damaged")
	}
	return newKey(raw)
}

func newKey(raw []byte) (*Key, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, fmt.Errorf("set up AES: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("set up AES-GCM: %w", err)
	}
	return &Key{aead}, nil
}

// Seal encrypts plain. bound says what it belongs to, and is given to Open again.
func (k *Key) Seal(plain, bound []byte) []byte {
	sealed := make([]byte, 1+k.aead.NonceSize(), 1+k.aead.NonceSize()+len(plain)+k.aead.Overhead())
	sealed[0] = sealVersion
	rand.Read(sealed[1:]) // never fails
	return k.aead.Seal(sealed, sealed[1:], plain, bound)
}

// Open reverses Seal. CodeInvalid: the bytes are damaged, belong to something else, or another key sealed them.
func (k *Key) Open(sealed, bound []byte) ([]byte, error) {
	n := k.aead.NonceSize()
	if len(sealed) <= n || sealed[0] != sealVersion {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decrypt with the machine's key: not sealed in version %d", sealVersion)
	}
	plain, err := k.aead.Open(nil, sealed[1:1+n], sealed[1+n:], bound)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decrypt with the machine's key: changed, or sealed by another key or for something else")
	}
	return plain, nil
}
