// Package machinekey encrypts what an edge keeps on its disk and nobody may read there, such as variables.
//
// edge.Open makes the key, and gives it to the packages that encrypt. It is in a file of mode 0600 in the data
// directory: it protects backups and copies of single files, not a stolen disk. The package starts no goroutine.
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

const keyPrefix = "skerry-machine-key-1 "

// New draws a key, and returns it with the text of its file.
func New() (*Key, []byte) {
	raw := sealing.DrawKey()
	key, err := sealing.NewKey(raw)
	if err != nil {
		panic(fmt.Sprintf("make a key of %d bytes: %v", len(raw), err)) // the length is right
	}
	return &Key{key}, []byte(keyPrefix + base64.StdEncoding.EncodeToString(raw) + "\n")
}

// Parse reads the text of a key's file.
func Parse(text []byte) (*Key, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(string(text)), keyPrefix)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	key, wrong := sealing.NewKey(raw)
	if !ok || err != nil || wrong != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the machine's key: it is damaged")
	}
	return &Key{key}, nil
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
