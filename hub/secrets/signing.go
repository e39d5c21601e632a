package secrets

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"fmt"

	"skerry/fleet"
	"skerry/hub/state"
)

// signingKeyBits is the size of signing keys: RS256 is what every verifier of tokens knows.
const signingKeyBits = 2048

// SigningKey signs the identities of workloads. KeyID is that of its root key.
type SigningKey struct {
	KeyID   string
	Private *rsa.PrivateKey
	public  []byte // as the state has it
}

// SigningBound returns the additional data that binds a wrapped signing key to its root key.
func SigningBound(keyID string) []byte { return []byte("skerry-signing-key/1\x00" + keyID) }

// newSigningKey draws a signing key for a root key.
func (s *Secrets) newSigningKey(keyID string) (*state.SigningKey, error) {
	private, err := rsa.GenerateKey(rand.Reader, signingKeyBits)
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	plain, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	made := &state.SigningKey{}
	if made.Public, err = x509.MarshalPKIXPublicKey(&private.PublicKey); err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	made.Wrapped, made.WrappedBy, err = s.cfg.Wrap.Wrap(plain, SigningBound(keyID))
	return made, err
}

// SigningKey returns the signing key of the active root key. It makes either if there is none. CodeUnavailable: this hub
// lacks the key that wraps it, and the error says what to do.
func (s *Secrets) SigningKey(ctx context.Context) (SigningKey, error) {
	row, err := s.activeKey(ctx)
	if err != nil {
		return SigningKey{}, err
	}
	s.mu.Lock()
	kept := s.signing
	s.mu.Unlock()
	if row.Signing != nil && kept.KeyID == row.KeyID && bytes.Equal(kept.public, row.Signing.Public) {
		return kept, nil
	}
	if row.Signing == nil {
		if row, err = s.addSigningKey(ctx, row.KeyID); err != nil {
			return SigningKey{}, err
		}
	}
	plain, err := s.cfg.Wrap.Unwrap(row.Signing.WrappedBy, row.Signing.Wrapped, SigningBound(row.KeyID))
	if err != nil {
		return SigningKey{}, err
	}
	private, err := parseSigningKey(plain)
	if err != nil {
		return SigningKey{}, fleet.Errorf(fleet.CodeInvalid, "read the signing key of root key %s: %w", row.KeyID, err)
	}
	next := SigningKey{row.KeyID, private, row.Signing.Public}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signing = next
	return next, nil
}

// addSigningKey commits a signing key for a root key that has none, and returns the key with the one that was first.
func (s *Secrets) addSigningKey(ctx context.Context, keyID string) (*state.RootKey, error) {
	made, err := s.newSigningKey(keyID)
	if err != nil {
		return nil, err
	}
	res, err := s.cfg.Apply.Apply(ctx, state.RootKeySigning{KeyID: keyID, Signing: *made})
	if err = res.Failure(err); err != nil {
		return nil, err
	}
	if err := s.cfg.State.WaitIndex(ctx, res.Index); err != nil {
		return nil, err
	}
	row, ok := s.cfg.State.View().RootKey(keyID)
	if !ok || row.Signing == nil {
		return nil, fleet.Errorf(fleet.CodeUnavailable, "give root key %s a signing key: it was removed meanwhile", keyID).WithHint("repeat it")
	}
	return row, nil
}

func parseSigningKey(plain []byte) (*rsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(plain)
	if err != nil {
		return nil, err
	}
	private, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is a %T", key)
	}
	return private, nil
}
