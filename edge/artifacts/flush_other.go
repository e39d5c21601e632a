//go:build !linux

package artifacts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// flushFolder makes all files below the folder durable.
func flushFolder(path string) error {
	return filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
