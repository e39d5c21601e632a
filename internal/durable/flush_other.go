//go:build !linux

package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// FlushFolder makes all files below the folder durable.
func FlushFolder(path string) error {
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
