package secrets_test

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/secrets"
)

// TestSigningKey: the first use makes the signing key of the active root key, which is wrapped in the state. Every hub
// signs with it. A rotation brings another one, and the state keeps the public half of the old one.
func TestSigningKey(t *testing.T) {
	f := newFixture(t)
	f.mustStore("app/db", fleet.VariableItems{"k": "v"}) // a root key without a signing key, as of an older release
	if made, err := f.secrets.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	} else if row, _ := f.Store.View().RootKey(made.KeyID); row.Signing != nil {
		t.Error("a rotation makes a signing key before any token is signed")
	}
	active, _ := f.Store.View().ActiveRootKey()
	old := active.KeyID
	first, err := f.secrets.SigningKey(t.Context())
	if err != nil || first.KeyID != old {
		t.Fatalf("the first signing key: %+v, %v", first.KeyID, err)
	}
	entries := len(f.Entries())
	for range 2 {
		if again, err := f.secrets.SigningKey(t.Context()); err != nil || !again.Private.Equal(first.Private) {
			t.Fatalf("the same hub: %v", err)
		}
	}
	other, err := f.newSecrets(f.stateKey).SigningKey(t.Context())
	if err != nil || !other.Private.Equal(first.Private) {
		t.Fatalf("another hub: %v", err)
	}
	if n := len(f.Entries()); n != entries {
		t.Errorf("%d entries more", n-entries)
	}
	row, _ := f.Store.View().RootKey(old)
	if public, err := x509.ParsePKIXPublicKey(row.Signing.Public); err != nil || !first.Private.PublicKey.Equal(public) {
		t.Errorf("the public half: %v", err)
	}
	if plain, err := x509.MarshalPKCS8PrivateKey(first.Private); err != nil || bytes.Contains(row.Signing.Wrapped, plain[len(plain)/2:]) {
		t.Errorf("the private half is in the state: %v", err)
	}
	made, err := f.secrets.Rotate(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if row, _ := f.Store.View().RootKey(made.KeyID); row.Signing == nil {
		t.Error("a rotation makes no signing key")
	}
	second, err := f.secrets.SigningKey(t.Context())
	if err != nil || second.KeyID != made.KeyID || second.Private.Equal(first.Private) {
		t.Fatalf("after the rotation: %+v, %v", second.KeyID, err)
	}
	if row, _ := f.Store.View().RootKey(old); row.Signing == nil {
		t.Error("the old public key is gone")
	}
	if _, err := f.newSecrets(pki.NewStateKey()).SigningKey(t.Context()); fleet.CodeOf(err) != fleet.CodeUnavailable {
		t.Errorf("without the state key: %v", err)
	}
}

// TestFirstSigningKeyIsMadeSoon: a hub that begins to lead before it has the cluster's state key makes the first signing key a moment
// after it has it.
func TestFirstSigningKeyIsMadeSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		keys := mustKeep(t)
		s := secrets.New(secrets.Config{
			State: f.Store, Apply: f, Lead: f, Wrap: pki.NewKeyring(pki.KeyringConfig{State: f.Store, Keys: keys}),
			Now: time.Now, Log: slog.New(slog.DiscardHandler), Signs: true,
		})
		go s.Lead(t.Context())
		time.Sleep(2 * time.Second)
		if err := keys.Add(t.Context(), f.stateKey); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if row, ok := f.Store.View().ActiveRootKey(); !ok || row.Signing == nil {
			t.Errorf("the root key is %+v", row)
		}
	})
}
