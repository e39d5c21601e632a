// Package machinekey has the key that encrypts what an edge keeps on its disk and nobody may read there, such as variables.
//
// edge.Open opens the Store, which keeps the key, and gives the Key to the packages that encrypt. The file of the key is in
// the data directory: sealed by the TPM of the machine (package tpm) or by a credential of systemd, so that the disk alone
// opens nothing, or in clear with mode 0600. Store.Run is the only goroutine.
package machinekey

import (
	"encoding/base64"
	"fmt"
	"strings"

	"skerry/fleet"
	"skerry/internal/sealing"
)

// Key encrypts with AES-256-GCM.
type Key struct{ key sealing.Key }

// Beginnings of the key's file: of one with the key in clear, and of one with the sealed key, after its place.
const (
	keyPrefix    = "skerry-machine-key-1 "
	sealedPrefix = "skerry-machine-key-2 "
	maxKeyFile   = 16 << 10
)

// New draws a key, and returns it with the text of a file that has it in clear.
func New() (*Key, []byte) {
	raw := sealing.DrawKey()
	return mustKeyOf(raw), clearText(raw)
}

// mustKeyOf makes the Key of bytes whose length is right.
func mustKeyOf(raw []byte) *Key {
	key, err := sealing.NewKey(raw)
	if err != nil {
		panic(fmt.Sprintf("make a key of %d bytes: %v", len(raw), err))
	}
	return &Key{key}
}

func clearText(raw []byte) []byte {
	return []byte(keyPrefix + base64.StdEncoding.EncodeToString(raw) + "\n")
}

func sealedText(place Place, sealed []byte) []byte {
	return []byte(sealedPrefix + string(place) + " " + base64.StdEncoding.EncodeToString(sealed) + "\n")
}

// Parse reads the text of a file that has the key in clear.
func Parse(text []byte) (*Key, error) {
	f, err := parseFile(text)
	if err != nil {
		return nil, err
	}
	if f.place != PlaceFile {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the machine's key: it is sealed, by %s", f.place)
	}
	return mustKeyOf(f.content), nil
}

// file is what the key's file has: the key where place is PlaceFile, else the sealed key.
type file struct {
	place   Place
	content []byte
}

func parseFile(text []byte) (file, error) {
	damaged := fleet.Errorf(fleet.CodeInvalid, "read the machine's key: it is damaged")
	if len(text) > maxKeyFile {
		return file{}, damaged
	}
	line := strings.TrimSpace(string(text))
	if encoded, ok := strings.CutPrefix(line, keyPrefix); ok {
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(raw) != sealing.KeyBytes {
			return file{}, damaged
		}
		return file{PlaceFile, raw}, nil
	}
	rest, ok := strings.CutPrefix(line, sealedPrefix)
	place, encoded, parted := strings.Cut(rest, " ")
	sealed, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || !parted || err != nil || len(sealed) == 0 || Place(place) != PlaceTPM && Place(place) != PlaceCredential {
		return file{}, damaged
	}
	return file{Place(place), sealed}, nil
}

// Seal encrypts plain. bound says what it belongs to, and is given to Open again.
func (k *Key) Seal(plain, bound []byte) []byte { return k.key.Seal(plain, bound) }

// Open reverses Seal. CodeInvalid: the bytes are damaged, belong to something else, or another key sealed them.
func (k *Key) Open(sealed, bound []byte) ([]byte, error) {
	plain, err := k.key.Open(sealed, bound)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "decrypt with the machine's key: %v", err)
	}
	return plain, nil
}
