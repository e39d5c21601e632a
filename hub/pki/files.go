package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skerry/syncproto/identity"
)

// The files of a hub's identity. The certificate is written last: without it
// there is no identity.
const (
	fileCA   = "ca.pem"
	fileKey  = "hub-key.pem"
	fileCert = "hub.pem"
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
		{fileCA, identity.EncodeCert(id.CA.Raw), 0o644},
		{fileKey, key, 0o600},
		{fileCert, identity.EncodeCert(id.Cert.Raw), 0o644},
	} {
		if err := WriteFile(filepath.Join(dir, f.name), f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}

// Load reads what Save wrote; ok is false where there is none.
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
	return id, true, nil
}

// WriteFile replaces a file's content at once and durably: who reads it finds the
// old content or the new one, also after a crash.
func WriteFile(path string, content []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}
