// Package sealing encrypts with AES-256-GCM in the formats that lie on the disks of hubs and edges, which never change. It
// knows neither files nor what is encrypted; callers say that by the bytes to which a text is bound. It starts no goroutine.
package sealing

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// KeyBytes is the length of a key.
const KeyBytes = 32

// Version is the first byte of what Key.Seal returns.
const Version = 1

// Errors of Open and OpenApart.
var (
	ErrCutShort = errors.New("cut short")
	ErrVersion  = errors.New("sealed in another version")
	// ErrChanged: the bytes were changed, are bound to something else, or another key sealed them.
	ErrChanged = errors.New("changed, or sealed for something else or by another key")
)

// Key encrypts and decrypts. It may be used by any goroutine.
type Key struct{ aead cipher.AEAD }

// NewKey makes a Key of its bytes.
func NewKey(raw []byte) (Key, error) {
	if len(raw) != KeyBytes {
		return Key{}, fmt.Errorf("a key has %d bytes, not %d", len(raw), KeyBytes)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return Key{}, fmt.Errorf("set up AES: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return Key{}, fmt.Errorf("set up AES-GCM: %w", err)
	}
	return Key{aead}, nil
}

// DrawKey returns the bytes of a new key.
func DrawKey() []byte {
	raw := make([]byte, KeyBytes)
	rand.Read(raw) // never fails
	return raw
}

// Seal encrypts plain. It returns Version, a drawn nonce, and the encrypted bytes.
func (k Key) Seal(plain, bound []byte) []byte {
	sealed := make([]byte, 1+k.aead.NonceSize(), 1+k.aead.NonceSize()+len(plain)+k.aead.Overhead())
	sealed[0] = Version
	rand.Read(sealed[1:]) // never fails
	return k.aead.Seal(sealed, sealed[1:], plain, bound)
}

// Open reverses Seal.
func (k Key) Open(sealed, bound []byte) ([]byte, error) {
	n := 1 + k.aead.NonceSize()
	switch {
	case len(sealed) < n:
		return nil, ErrCutShort
	case sealed[0] != Version:
		return nil, fmt.Errorf("%w: %d", ErrVersion, sealed[0])
	}
	return k.OpenApart(sealed[1:n], sealed[n:], bound)
}

// SealApart encrypts plain and returns the drawn nonce and the encrypted bytes, for a format that has both.
func (k Key) SealApart(plain, bound []byte) (nonce, data []byte) {
	nonce = make([]byte, k.aead.NonceSize())
	rand.Read(nonce) // never fails
	return nonce, k.aead.Seal(nil, nonce, plain, bound)
}

// OpenApart reverses SealApart.
func (k Key) OpenApart(nonce, data, bound []byte) ([]byte, error) {
	if len(nonce) != k.aead.NonceSize() {
		return nil, ErrCutShort
	}
	plain, err := k.aead.Open(nil, nonce, data, bound)
	if err != nil {
		return nil, ErrChanged
	}
	return plain, nil
}

// SealOnly encrypts the only text that the key ever encrypts: its nonce is constant, and not part of the result.
func (k Key) SealOnly(plain []byte) []byte {
	return k.aead.Seal(nil, make([]byte, k.aead.NonceSize()), plain, nil)
}

// OpenOnly reverses SealOnly.
func (k Key) OpenOnly(sealed []byte) ([]byte, error) {
	return k.OpenApart(make([]byte, k.aead.NonceSize()), sealed, nil)
}
