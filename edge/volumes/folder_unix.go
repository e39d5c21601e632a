//go:build unix

package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// DefaultLockDir returns the folder of the locks of this user's edges on the machine.
func DefaultLockDir() string {
	if _, err := os.Stat("/run"); err == nil && os.Geteuid() == 0 {
		return "/run/skerry/host-volumes"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("skerry-host-volumes-%d", os.Geteuid()))
}

// lockName returns the name of a folder's lock, which is the same by every path of the folder.
func lockName(info os.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%x-%d", uint64(st.Dev), st.Ino) // Dev is narrower on some systems
}

// deviceOf returns the device of a folder's file system; 0: it is not known.
func deviceOf(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev)
	}
	return 0
}

// isPrivate reports whether a folder belongs to the agent's user, and nobody else can write to it.
func isPrivate(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}
