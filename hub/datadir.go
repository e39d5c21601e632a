package hub

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"skerry/fleet"
	"skerry/fleet/durable"
)

// dataVersion is the layout of a data directory that this build writes. It reads
// no newer one.
const dataVersion = 1

// Names below a hub's data directory.
const (
	lockFile      = "lock"
	versionFile   = "version"
	joinTokenFile = "join-token"
	resetKeyFile  = "reset-key"
	identityDir   = "identity" // certificate, key, CA
	raftDir       = "raft"     // log and snapshots

	edgeFile = "identity/node-id" // in an edge's data directory, and never in a hub's
)

// dataDir is a hub's data directory, held by this process alone.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir makes the directory where it is missing, takes its lock and checks
// that this build may write to it.
func openDataDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open data directory %s: %w", path, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, diskError("make data directory "+path, err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, diskError("open data directory "+path, err)
	}
	if err := lockExclusive(lock); err != nil {
		return nil, errors.Join(fleet.Errorf(fleet.CodeConflict, "open data directory %s: it is in use by another process", path).
			WithHint("stop that process, or give each hub a data directory of its own"), lock.Close())
	}
	d := &dataDir{path: path, lock: lock}
	if err := d.checkVersion(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// checkVersion refuses a newer layout. Writing the file also shows that the
// directory is writable and the disk not full before anything depends on it.
func (d *dataDir) checkVersion() error {
	b, err := os.ReadFile(d.file(versionFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return diskError("open data directory "+d.path, err)
	default:
		v, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "open data directory %s: its version %q is not a number", d.path, b).
				WithHint("is it a hub's data directory?")
		}
		if v > dataVersion {
			return fleet.Errorf(fleet.CodeVersion, "open data directory %s: its version is %d, this release knows %d", d.path, v, dataVersion).
				WithHint("use the release that wrote it, or a newer one")
		}
	}
	return d.write(versionFile, fmt.Appendf(nil, "%d\n", dataVersion), 0o600)
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// write replaces a file, durably: after a crash it is the old or the new one.
func (d *dataDir) write(name string, content []byte, mode fs.FileMode) error {
	if err := durable.Replace(d.file(name), content, mode); err != nil {
		return diskError("write "+d.file(name), err)
	}
	return nil
}

// resetKey is a secret of this data directory by which a restarted hub tells
// peers that their former connections are gone.
func (d *dataDir) resetKey() (key [32]byte, err error) {
	b, err := os.ReadFile(d.file(resetKeyFile))
	if err == nil && len(b) == len(key) {
		return [32]byte(b), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return key, diskError("read "+d.file(resetKeyFile), err)
	}
	rand.Read(key[:]) // never fails
	return key, d.write(resetKeyFile, key[:], 0o600)
}

func (d *dataDir) close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("release data directory %s: %w", d.path, err)
	}
	return nil
}

// diskError says what a person can do about a disk that does not take a write.
func diskError(verb string, err error) error {
	switch {
	case diskFull(err):
		return fleet.Errorf(fleet.CodeUnavailable, "%s: the disk is full", verb).WithHint("free some space and start again")
	case errors.Is(err, fs.ErrPermission) || readOnly(err):
		return fleet.Errorf(fleet.CodeForbidden, "%s: not writable: %v", verb, err).
			WithHint("check its owner and mode, and whether the disk is mounted read-only")
	}
	return fmt.Errorf("%s: %w", verb, err)
}
