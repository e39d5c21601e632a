package datadir

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// LockFile takes the lock of a file without waiting. The lock ends when the file is closed, with the process at the latest.
// The error is ErrLocked if the file was opened and locked by somebody else.
func LockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

func diskFull(err error) bool { return errors.Is(err, windows.ERROR_DISK_FULL) }

func readOnly(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }
