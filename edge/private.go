package edge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"skerry/internal/datadir"
)

// makePrivate removes access by others from files that earlier releases left open: the folders of the
// identity, the drivers and the allocations, and their logs. Nobody else can enter a folder of mode
// 0700, so deeper files need no change.
func (e *Edge) makePrivate() error {
	for _, pattern := range []string{
		"identity", tasksDir, allocsDir, journalFile + ".damaged-*",
		allocsDir + "/*", allocsDir + "/*/alloc", allocsDir + "/*/alloc/logs", allocsDir + "/*/alloc/logs/*",
	} {
		found, err := fs.Glob(os.DirFS(e.dir.File()), pattern)
		if err != nil {
			return fmt.Errorf("make the data directory private: %w", err)
		}
		for _, name := range found {
			if err := removeOtherAccess(e.dir.File(name)); err != nil {
				return datadir.DiskError("make "+e.dir.File(name)+" private", err)
			}
		}
	}
	return nil
}

// removeOtherAccess takes the permissions of group and others from a file or folder. A link, or a missing file,
// stays as it is.
func removeOtherAccess(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mode := info.Mode()
	if mode&fs.ModeSymlink != 0 || mode.Perm()&0o077 == 0 {
		return nil // the target of a task's link is not changed
	}
	return os.Chmod(name, mode.Perm()&0o700)
}
