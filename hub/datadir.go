package hub

import (
	"crypto/rand"

	"skerry/internal/datadir"
)

// dataVersion is the layout of a data directory that this release writes. It reads
// no newer one.
const dataVersion = 1

// Names below a hub's data directory, beside those of package pki.
const (
	resetKeyFile = "reset-key"
	raftDir      = "raft" // log and snapshots
	auditDir     = "audit"
	edgeFile     = "identity/node-id" // in an edge's data directory, and never in a hub's
)

// resetKey returns the data directory's transport.Config.ResetKey. It generates and stores one if there is none.
func resetKey(dir *datadir.Dir) (key [32]byte, err error) {
	b, ok, err := dir.Read(resetKeyFile)
	switch {
	case err != nil:
		return key, err
	case ok && len(b) == len(key):
		return [32]byte(b), nil
	}
	rand.Read(key[:]) // never fails
	return key, dir.Write(resetKeyFile, key[:], 0o600)
}
