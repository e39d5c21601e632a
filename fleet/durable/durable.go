// Package durable replaces files on disks that lose their power. The data directories of
// hubs and of edges call it, and what writes the files in them.
//
// It starts no goroutine. It makes no folders, and does not say what a person can do
// about a disk that refuses: who calls it knows what the file is for.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces a file's content as a whole: whoever reads it, also after a crash,
// finds the old content or the new one. When it returns, the new one stays.
func Replace(path string, content []byte, mode fs.FileMode) error {
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(folder)
}
