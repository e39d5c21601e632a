package edge

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"skerry/fleet"
	"skerry/internal/datadir"
	"skerry/syncproto/identity"
)

// KeyHash returns the SHA-256 of the public key of the edge with a data directory, which join tokens with a list of keys
// know. An edge that was never started gets its key. It works beside a running agent.
func KeyHash(dataDir string) (hash [sha256.Size]byte, err error) {
	path := filepath.Join(dataDir, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = makeKey(dataDir)
	}
	if err != nil {
		return hash, fmt.Errorf("read the key of the edge: %w", err)
	}
	key, err := identity.DecodeKey(text)
	if err != nil {
		return hash, fleet.Errorf(fleet.CodeInvalid, "read the key of the edge in %s: %w", path, err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return hash, fmt.Errorf("encode the public key of the edge: %w", err)
	}
	return sha256.Sum256(der), nil
}

// makeKey writes a key for an edge that has none, and returns it encoded.
func makeKey(dataDir string) (text []byte, err error) {
	if _, err := os.Stat(filepath.Join(dataDir, hubFile)); err == nil {
		return nil, fleet.Errorf(fleet.CodeConflict, "open data directory %s: it belongs to a hub", dataDir).
			WithHint("give the edge a data directory of its own")
	}
	dir, err := datadir.Open(dataDir, datadir.Kind{Owner: "an edge", Version: dataVersion})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	key, err := (&Edge{dir: dir, log: slog.New(slog.DiscardHandler)}).enrolKey()
	if err != nil {
		return nil, err
	}
	return identity.EncodeKey(key)
}
