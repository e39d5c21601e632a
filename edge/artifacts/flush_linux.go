package artifacts

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// flushFolder makes all writes to the file system of the folder durable.
func flushFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
