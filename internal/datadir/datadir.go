// Package datadir holds the data directory of a hub or an edge: one process at a
// time, of one version, with files that are replaced whole.
//
// hub.Open and edge.Open open it before anything else. It starts no goroutine; the
// lock ends with the process, however that ends. It knows nothing of what the files
// mean.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/internal/durable"
)

const (
	lockFile    = "lock"
	versionFile = "version"
)

// ErrLocked is the error of LockFile for a file that somebody else has locked.
var ErrLocked = errors.New("it is locked by another process")

// Kind is whose data directories there are.
type Kind struct {
	Owner   string // "a hub"
	Version int    // of the layout that this release writes; it reads no newer one
	// NeedsSpace refuses to open a directory that takes no write: a hub cannot do its work on
	// a full disk, an edge can.
	NeedsSpace bool
	// Reserve is how many bytes are kept for the day on which the disk is full, at most a
	// twentieth of the disk; 0: none.
	Reserve int64
	// Free returns how much of a path's disk is free, and its size; nil: asks the system.
	Free func(path string) (free, total int64, err error)
	// Step is called before each write, with its label; an error makes it fail. nil: nothing.
	Step func(label string) error
}

// StepWrite is the label of a write to a file of the directory, as Kind.Step is given it.
const StepWrite = "write-file"

// Dir is a data directory, held by this process alone.
type Dir struct {
	path string
	kind Kind
	lock *os.File

	reserve sync.Mutex // held by who changes the reserve's size
	started bool       // guarded by reserve; see EndStart
}

// Open makes the directory (mode 0700) where it is missing, takes its lock, and
// checks that this release may write to it. Errors are *fleet.Error: in use
// (CodeConflict), of a newer version (CodeVersion), not writable (CodeForbidden),
// full (CodeUnavailable).
func Open(path string, kind Kind) (*Dir, error) {
	if kind.Free == nil {
		kind.Free = durable.FreeSpace
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open data directory %s: %w", path, err)
	}
	what := "open data directory " + path
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, DiskError(what, err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, DiskError(what, err)
	}
	if err := acquireLock(lock); err != nil {
		inUse := fleet.Errorf(fleet.CodeConflict, "%s: it is in use by another process", what).
			WithHint("is %s running here already? Each needs a data directory of its own", kind.Owner)
		return nil, errors.Join(inUse, lock.Close())
	}
	d := &Dir{path: path, kind: kind, lock: lock}
	d.checkSpace(true)
	if err := d.checkVersion(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// How long Open tries to take a lock that somebody holds. When an agent is killed while
// it starts a task, the child has the lock as well, from its fork until its exec.
const (
	lockTimeout       = 5 * time.Second
	lockRetryInterval = 20 * time.Millisecond
)

func acquireLock(lock *os.File) error {
	for began := time.Now(); ; time.Sleep(lockRetryInterval) {
		if err := LockFile(lock); err == nil || time.Since(began) > lockTimeout {
			return err
		}
	}
}

// checkVersion refuses a newer layout. The file is written only where it says something
// else, or where the directory has to take writes: else a start needs no new disk space.
func (d *Dir) checkVersion() error {
	what := "open data directory " + d.path
	b, err := os.ReadFile(d.File(versionFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return DiskError(what, err)
	}
	if text := strings.TrimSpace(string(b)); text != "" { // an empty one is what a full disk leaves
		v, err := strconv.Atoi(text)
		if err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "%s: its version is %q, not a number", what, text).
				WithHint("is it the data directory of %s?", d.kind.Owner)
		}
		if v > d.kind.Version {
			return fleet.Errorf(fleet.CodeVersion, "%s: it is of a newer version (%d, this release knows %d)", what, v, d.kind.Version).
				WithHint("run the release that wrote it, or a newer one")
		}
		if v == d.kind.Version && !d.kind.NeedsSpace {
			return nil
		}
	}
	return d.Write(versionFile, fmt.Appendf(nil, "%d\n", d.kind.Version), 0o600)
}

// File is the path of a file in the directory.
func (d *Dir) File(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// Read reads a file; ok is false where it is not there.
func (d *Dir) Read(name string) (b []byte, ok bool, err error) {
	b, err = os.ReadFile(d.File(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, DiskError("read "+d.File(name), err)
	}
	return b, true, nil
}

// Write replaces a file of the directory durably. Folders on its way are made.
func (d *Dir) Write(name string, content []byte, mode fs.FileMode) error {
	path := d.File(name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = d.replaceWithReserve(path, content, mode)
	}
	if err != nil {
		return DiskError("write "+path, err)
	}
	return nil
}

// Close releases the lock of the directory.
func (d *Dir) Close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("give data directory %s free: %w", d.path, err)
	}
	return nil
}

// DiskError wraps an error of the disk with a code and a hint, if it is full or not writable. what names what was
// being done.
func DiskError(what string, err error) error {
	switch {
	case diskFull(err):
		return fleet.Errorf(fleet.CodeUnavailable, "%s: the disk is full", what).WithHint("free some space and start again")
	case errors.Is(err, fs.ErrPermission), readOnly(err):
		return fleet.Errorf(fleet.CodeForbidden, "%s: it is not writable: %w", what, err).
			WithHint("check its owner and mode, and whether the disk is mounted read-only")
	}
	return fmt.Errorf("%s: %w", what, err)
}
