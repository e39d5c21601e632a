//go:build unix

package datadir

import (
	"errors"
	"os"
	"syscall"
)

// LockFile takes the lock of a file without waiting. The lock ends when the file is closed, with the process at the latest.
// The error is ErrLocked if the file was opened and locked by somebody else.
func LockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func readOnly(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOTDIR)
}
