package hub

import "path/filepath"

// LoadCredentials reads the identity below a data directory, as a start does.
func LoadCredentials(dir string) (found bool, err error) {
	_, found, err = loadCredentials(filepath.Join(dir, identityDir))
	return found, err
}
