package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"skerry/internal/durable"
	"skerry/syncproto/identity"
)

// The files of a hub's identity. The certificate is written last: without it
// there is no identity.
const (
	fileCA   = "ca.pem"
	fileKey  = "hub-key.pem"
	fileCert = "hub.pem"
	// fileCAKey is a copy on disk of the CA's key in the replicated state. If all hubs were off until their certificates
	// ended, they need the copy to renew them before they can talk to each other.
	fileCAKey = "ca-key.pem"
	// fileCAs has the CAs whose edges alone are accepted, and the bridges between CAs, if the CA was ever replaced.
	fileCAs = "former-cas.pem"
)

// Save writes a hub's identity below dir, which it makes, durably: ca.pem,
// hub-key.pem (mode 0600) and hub.pem.
func Save(dir string, id *identity.Identity) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	key, err := identity.EncodeKey(id.Key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
		mode os.FileMode
	}{
		{fileCA, identity.EncodeCerts(id.Authorities()), 0o644},
		{fileKey, key, 0o600},
		{fileCert, identity.EncodeCert(id.Cert.Raw), 0o644},
	} {
		if err := replaceFile(dir, f.name, f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}

// SaveCert durably replaces only the certificate of an identity, after Renew.
func SaveCert(dir string, id *identity.Identity) error {
	return replaceFile(dir, fileCert, identity.EncodeCert(id.Cert.Raw), 0o644)
}

// SaveAuthorities durably replaces the CAs of an identity, and the bridges between them.
func SaveAuthorities(dir string, id *identity.Identity) error {
	if err := replaceFile(dir, fileCAs, identity.EncodeCerts(slices.Concat(id.Former, id.Bridges)), 0o644); err != nil {
		return err
	}
	return replaceFile(dir, fileCA, identity.EncodeCerts(id.Authorities()), 0o644)
}

// loadFormer reads the CAs and bridges that SaveAuthorities wrote beside those in ca.pem.
func loadFormer(dir string, id *identity.Identity) error {
	text, err := os.ReadFile(filepath.Join(dir, fileCAs))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the former CAs: %w", err)
	}
	certs, err := identity.DecodeCerts(text)
	if err != nil {
		return fmt.Errorf("read the former CAs in %s: %w", dir, err)
	}
	for _, cert := range certs {
		if string(cert.RawSubject) == string(cert.RawIssuer) {
			id.Former = append(id.Former, cert)
		} else {
			id.Bridges = append(id.Bridges, cert)
		}
	}
	return nil
}

// SaveAuthority writes the CA's key below dir, durably and with mode 0600.
func SaveAuthority(dir string, a *Authority) error {
	key, err := identity.EncodeKey(a.key)
	if err != nil {
		return err
	}
	return replaceFile(dir, fileCAKey, key, 0o600)
}

func replaceFile(dir, name string, text []byte, mode fs.FileMode) error {
	path := filepath.Join(dir, name)
	if err := durable.Replace(path, text, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// LoadAuthority reads the CA's key that SaveAuthority wrote; nil if there is none. It fails if the key is
// not the one of any of the CAs.
func LoadAuthority(dir string, cas ...*x509.Certificate) (*Authority, error) {
	text, err := os.ReadFile(filepath.Join(dir, fileCAKey))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the CA's key: %w", err)
	}
	key, err := identity.DecodeKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the CA's key: %w", err)
	}
	for _, ca := range cas {
		a, failed := newAuthority(ca, key)
		if failed == nil {
			return a, nil
		}
		err = failed
	}
	return nil, err
}

// Load reads the identity that Save wrote; ok is false if there is none.
func Load(dir string) (id *identity.Identity, ok bool, err error) {
	cert, err := os.ReadFile(filepath.Join(dir, fileCert))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the hub's certificate: %w", err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, fileCA))
	if err != nil {
		return nil, false, fmt.Errorf("read the CA's certificate: %w", err)
	}
	key, err := os.ReadFile(filepath.Join(dir, fileKey))
	if err != nil {
		return nil, false, fmt.Errorf("read the hub's key: %w", err)
	}
	if id, err = identity.Load(cert, key, ca); err != nil {
		return nil, false, fmt.Errorf("load the identity in %s: %w", dir, err)
	}
	if err := loadFormer(dir, id); err != nil {
		return nil, false, err
	}
	return id, true, nil
}
