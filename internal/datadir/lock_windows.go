package datadir

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockExclusive takes a lock that ends with the process.
func lockExclusive(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
}

func diskFull(err error) bool { return errors.Is(err, windows.ERROR_DISK_FULL) }

func readOnly(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }
