package volumes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"skerry/fleet"
	"skerry/internal/datadir"
	"skerry/internal/sorting"
)

// Locks says how an edge locks the folders that its tasks may write to. A lock is an open file with flock, and ends with the agent.
// Tasks go on without it: the file's content (JSON) keeps other edges away until the agent is back, the machine boots, or
// the agent's data directory or the file is removed.
type Locks struct {
	Dir     string // of the lock files, one for all edges of a user; "": folders are not locked
	DataDir string // of this edge, absolute: it is what a lock says of its holder
	BootID  fleet.BootID
	// Ended reports whether an allocation has ended, or was never here. New releases the locks that only ended ones had. nil: none has.
	Ended func(fleet.AllocID) bool
}

// maxLockRecord bounds what is read of a lock file, and so how many tasks a record can name: some thousands.
const maxLockRecord = 1 << 20

// lockRecord is the content of a lock file.
type lockRecord struct {
	BootID  fleet.BootID `json:"boot_id"`
	DataDir string       `json:"data_dir"`
	Users   []lockUser   `json:"users"`
}

// lockUser is a task that may write to a folder.
type lockUser struct {
	Alloc fleet.AllocID `json:"alloc"`
	Task  string        `json:"task"`
}

// heldLock is a lock of this agent.
type heldLock struct {
	file  *os.File
	users map[lockUser]bool
}

// folderLocks holds the locks of one agent. Its methods may be called from any goroutine.
type folderLocks struct {
	cfg Locks
	log *slog.Logger

	mu     sync.Mutex           // held also while lock files, which are on the machine itself, are read and written
	held   map[string]*heldLock // by name of the lock
	warned bool                 // the log says that folders cannot be locked
}

// retakeLocks takes the locks again that an earlier process of this agent had, because its tasks may run.
func (l *folderLocks) retakeLocks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	files, err := os.ReadDir(l.cfg.Dir)
	if l.cfg.Dir == "" || err != nil {
		return // there are none
	}
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		record, ok := readLockRecord(filepath.Join(l.cfg.Dir, f.Name()))
		if !ok || record.DataDir != l.cfg.DataDir || record.BootID != l.cfg.BootID || len(record.Users) == 0 {
			continue
		}
		held, _, err := l.openLock(f.Name())
		switch {
		case err != nil:
			l.warnOnce(err)
		case held != nil:
			l.held[f.Name()] = held
			l.writeUsers(f.Name(), held)
		}
	}
}

// lockFolder locks a folder for a task. The error is a *fleet.Error if another edge has it. It does nothing if ctx has ended.
func (l *folderLocks) lockFolder(ctx context.Context, user lockUser, source, path string, info os.FileInfo) error {
	name := lockName(info)
	if l.cfg.Dir == "" || name == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return nil // Release may have been called already
	}
	held := l.held[name]
	inPlace := held != nil && l.isInPlace(name, held)
	if inPlace && held.users[user] {
		return nil
	}
	if !inPlace {
		next, holder, err := l.openLock(name)
		if err != nil {
			l.warnOnce(err)
			return nil
		}
		if next == nil {
			return l.inUse(name, source, path, holder)
		}
		if held != nil { // its file was deleted
			maps.Copy(next.users, held.users)
			_ = held.file.Close()
		}
		l.held[name], held = next, next
	}
	held.users[user] = true
	l.writeUsers(name, held)
	return nil
}

// releaseFolders ends the use of all folders but those of keep by the users that match.
func (l *folderLocks) releaseFolders(matches func(lockUser) bool, keep ...os.FileInfo) {
	kept := make(map[string]bool)
	for _, info := range keep {
		kept[lockName(info)] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, held := range l.held {
		before := len(held.users)
		maps.DeleteFunc(held.users, func(u lockUser, _ bool) bool { return !kept[name] && matches(u) })
		if len(held.users) != before {
			l.writeUsers(name, held)
		}
	}
}

// openLock takes a lock, with the tasks that an earlier process of this agent locked the folder for. If another edge has
// the lock, it returns nil and the record of that edge. An error says that nothing can be locked.
func (l *folderLocks) openLock(name string) (*heldLock, lockRecord, error) {
	if err := l.makeLockDir(); err != nil {
		return nil, lockRecord{}, err
	}
	path := filepath.Join(l.cfg.Dir, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, lockRecord{}, fmt.Errorf("open lock: %w", err)
	}
	if err := datadir.LockFile(f); err != nil {
		_ = f.Close()
		if !errors.Is(err, datadir.ErrLocked) {
			return nil, lockRecord{}, fmt.Errorf("lock %s: %w", path, err)
		}
		record, _ := readLockRecord(path)
		return nil, record, nil
	}
	record, ok := readLockRecord(path)
	held := &heldLock{file: f, users: map[lockUser]bool{}}
	switch {
	case !ok || record.BootID != l.cfg.BootID: // the tasks of another boot have ended
	case record.DataDir == l.cfg.DataDir:
		for _, u := range record.Users {
			if l.cfg.Ended == nil || !l.cfg.Ended(u.Alloc) {
				held.users[u] = true
			}
		}
	case len(record.Users) > 0 && filepath.IsAbs(record.DataDir):
		if _, err := os.Stat(record.DataDir); !errors.Is(err, fs.ErrNotExist) {
			return nil, record, f.Close() // its agent does not run, but its tasks may
		}
	}
	return held, record, nil
}

// makeLockDir makes the folder of the locks, and refuses one in which another user can write.
func (l *folderLocks) makeLockDir() error {
	err := os.MkdirAll(filepath.Dir(l.cfg.Dir), 0o711)
	if err == nil {
		if err = os.Mkdir(l.cfg.Dir, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("make the folder of locks: %w", err)
	}
	switch info, err := os.Lstat(l.cfg.Dir); {
	case err != nil:
		return fmt.Errorf("look at the folder of locks: %w", err)
	case !isPrivate(info):
		return fmt.Errorf("another user can write to the folder of locks %s", l.cfg.Dir)
	}
	return nil
}

// isInPlace reports whether a held lock is the file that other edges would open. A cleaner of old files may have deleted it.
func (l *folderLocks) isInPlace(name string, held *heldLock) bool {
	now, err := os.Stat(filepath.Join(l.cfg.Dir, name))
	if err != nil {
		return false
	}
	own, err := held.file.Stat()
	return err == nil && os.SameFile(now, own)
}

// writeUsers writes the users of a lock into its file. It gives up a lock that has none.
func (l *folderLocks) writeUsers(name string, held *heldLock) {
	users := slices.Collect(maps.Keys(held.users))
	sorting.Slice(users, func(a, b lockUser) int { return cmp.Or(cmp.Compare(a.Alloc, b.Alloc), cmp.Compare(a.Task, b.Task)) })
	err := held.file.Truncate(0)
	if err == nil && len(users) > 0 {
		var text []byte
		if text, err = json.Marshal(lockRecord{BootID: l.cfg.BootID, DataDir: l.cfg.DataDir, Users: users}); err == nil {
			_, err = held.file.WriteAt(append(text, '\n'), 0)
		}
	}
	if len(users) == 0 {
		delete(l.held, name)
		err = errors.Join(err, held.file.Close()) // the file stays: another edge may be opening it
	}
	if err != nil {
		l.warnOnce(fmt.Errorf("write lock %s: %w", name, err))
	}
}

// inUse returns the error of a folder that another edge has.
func (l *folderLocks) inUse(name, source, path string, holder lockRecord) error {
	who := "another edge of this machine"
	if filepath.IsAbs(holder.DataDir) {
		who = fmt.Sprintf("the edge with the data directory %.200q", holder.DataDir)
	}
	return fleet.Errorf(fleet.CodeConflict, "the folder %s of the host volume %q is in use by tasks of %s", path, source, who).
		WithHint("give each edge a folder of its own, or make the volume read_only; if that edge is gone for good, delete %s", filepath.Join(l.cfg.Dir, name))
}

// warnOnce logs that folders cannot be locked, once.
func (l *folderLocks) warnOnce(err error) {
	if !l.warned {
		l.warned = true
		l.log.Warn("folders of host volumes are not locked: another edge of this machine could write to them too", "error", err)
	}
}

// readLockRecord reads a lock file. ok is false if it has no record.
func readLockRecord(path string) (record lockRecord, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return lockRecord{}, false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLockRecord))
	if err != nil || json.Unmarshal(text, &record) != nil {
		return lockRecord{}, false
	}
	return record, true
}
