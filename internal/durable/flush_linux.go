package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// FlushFolder makes all writes to the file system of the folder durable.
func FlushFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
