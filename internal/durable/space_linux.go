package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// FreeSpace returns how many bytes this process may still write to the file system that path lies on, and how large that
// is, without the blocks that are reserved for others.
func FreeSpace(path string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	blocks := st.Bavail
	if os.Geteuid() == 0 {
		// Root has the blocks that are reserved for it, but not those that ext4 keeps for itself.
		kept := min(st.Blocks/50, 4096)
		blocks = max(blocks, st.Bfree-min(kept, st.Bfree))
	}
	return int64(blocks) * int64(st.Bsize), int64(st.Blocks-st.Bfree+blocks) * int64(st.Bsize), nil
}

// FreeInodes returns how many more files the file system that path lies on may have, and how many it may have in all;
// 0 and 0 if it has no fixed number.
func FreeInodes(path string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(st.Ffree), int64(st.Files), nil
}

// Allocate gives a file so many bytes, for which the disk has room from then on.
func Allocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return writeZeros(f, size)
	}
	return err
}
