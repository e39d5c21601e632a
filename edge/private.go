package edge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"skerry/internal/datadir"
)

// makePrivate removes access by others from files that earlier releases left open: the folders of the
// identity, the drivers and the allocations, and their logs. Nobody else can enter a folder of mode
// 0700, so deeper files need no change. It keeps the access that tasks of other users have: they may run.
func (e *Edge) makePrivate() error {
	files := os.DirFS(e.dir.File())
	opened, err := openedForUsers(files)
	if err != nil {
		return fmt.Errorf("make the data directory private: %w", err)
	}
	for _, pattern := range []string{
		"identity", tasksDir, allocsDir, journalFile + ".damaged-*",
		allocsDir + "/*", allocsDir + "/*/alloc", allocsDir + "/*/alloc/logs", allocsDir + "/*/alloc/logs/*",
	} {
		found, err := fs.Glob(files, pattern)
		if err != nil {
			return fmt.Errorf("make the data directory private: %w", err)
		}
		for _, name := range found {
			if err := limitMode(e.dir.File(name), 0o700|opened[name]); err != nil {
				return datadir.DiskError("make "+e.dir.File(name)+" private", err)
			}
		}
	}
	return nil
}

// openedForUsers returns the folders that drivers opened to tasks of other users, with the permissions that others have
// there: see GiveFolders of drivers/supervised. Everybody may write to alloc/data of such an allocation.
func openedForUsers(files fs.FS) (map[string]fs.FileMode, error) {
	shared, err := fs.Glob(files, allocsDir+"/*/alloc/data")
	if err != nil {
		return nil, err
	}
	opened := map[string]fs.FileMode{}
	for _, data := range shared {
		if info, err := fs.Lstat(files, data); err != nil || info.Mode() != fs.ModeDir|0o777 {
			continue
		}
		alloc := path.Dir(data)
		opened[alloc], opened[path.Dir(alloc)], opened[allocsDir] = 0o055, 0o011, 0o011
	}
	return opened, nil
}

// limitMode takes the permissions that are not in allowed from a file or folder. A link, or a missing file, stays as it is.
func limitMode(name string, allowed fs.FileMode) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mode := info.Mode()
	if mode&fs.ModeSymlink != 0 || mode.Perm()&^allowed == 0 {
		return nil // the target of a task's link is not changed
	}
	return os.Chmod(name, mode.Perm()&allowed)
}
