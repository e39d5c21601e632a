package machinekey

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"skerry/fleet"
	"skerry/internal/sealing"
)

const (
	// CredentialName is the name of the credential of systemd that seals the machine's key.
	CredentialName = "skerry-machine-key"

	credentialLabel    = "skerry-machine-key-credential/1"
	minCredentialBytes = 32
	maxCredentialBytes = 1 << 20
)

// Credential seals the machine's key with a key derived from a credential that systemd gives the agent. It implements
// Keeper.
type Credential struct{ dir string }

// NewCredential returns the Keeper for the folder that systemd names in $CREDENTIALS_DIRECTORY; "": it gave none.
func NewCredential(dir string) Credential { return Credential{dir} }

// Place returns PlaceCredential.
func (c Credential) Place() Place { return PlaceCredential }

// Seal encrypts the machine's key.
func (c Credential) Seal(plain []byte) ([]byte, error) {
	key, err := c.derivedKey()
	if err != nil {
		return nil, fmt.Errorf("seal the machine's key: %w", err)
	}
	return key.Seal(plain, []byte(credentialLabel)), nil
}

// Unseal reverses Seal. ErrForeign: another credential sealed it.
func (c Credential) Unseal(sealed []byte) ([]byte, error) {
	key, err := c.derivedKey()
	if err != nil {
		return nil, fmt.Errorf("unseal the machine's key: %w", err)
	}
	plain, err := key.Open(sealed, []byte(credentialLabel))
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "unseal the machine's key with the credential %s: %w", CredentialName, ErrForeign).
			WithHint("give the agent the credential that sealed it; otherwise the key is replaced when a hub answers, which sends the secrets again")
	}
	return plain, nil
}

// derivedKey reads the credential and derives the key from it.
func (c Credential) derivedKey() (sealing.Key, error) {
	if c.dir == "" {
		return sealing.Key{}, absentCredential("systemd gave the agent no credentials")
	}
	path := filepath.Join(c.dir, CredentialName)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return sealing.Key{}, absentCredential("systemd did not give the agent this one")
	}
	if err != nil {
		return sealing.Key{}, fmt.Errorf("read the credential %s: %w", CredentialName, err)
	}
	secret, err := io.ReadAll(io.LimitReader(f, maxCredentialBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return sealing.Key{}, fmt.Errorf("read the credential %s: %w", CredentialName, err)
	}
	if len(secret) < minCredentialBytes || len(secret) > maxCredentialBytes {
		return sealing.Key{}, fleet.Errorf(fleet.CodeInvalid, "read the credential %s: it has %d bytes, not %d or more", CredentialName, len(secret), minCredentialBytes).
			WithHint("make it of random bytes: head -c 32 /dev/urandom | systemd-creds encrypt --name=%s - FILE", CredentialName)
	}
	raw, err := hkdf.Key(sha256.New, secret, nil, credentialLabel, sealing.KeyBytes)
	if err != nil {
		return sealing.Key{}, fmt.Errorf("derive a key from the credential %s: %w", CredentialName, err)
	}
	return sealing.NewKey(raw)
}

func absentCredential(why string) error {
	return fleet.Errorf(fleet.CodeUnavailable, "read the credential %s: %s: %w", CredentialName, why, ErrAbsent).
		WithHint("add LoadCredentialEncrypted=%s to the unit of the agent", CredentialName)
}
