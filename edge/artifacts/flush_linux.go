package artifacts

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// flushFolder makes all that was written to the folder's file system durable.
func flushFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
