package docker

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// podmanProcesses is the process limit that Podman gives itself and cannot exceed in a container.
const podmanProcesses = 32768

// identity identifies a folder, as opposed to a copy, also after a reboot: by its inode and the id of its file system.
// Device numbers may change at a reboot.
func identity(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("identify %s: %w", dir, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", fmt.Errorf("identify %s: %w", dir, err)
	}
	return fmt.Sprintf("%x-%x-%d", uint32(fs.Fsid.Val[0]), uint32(fs.Fsid.Val[1]), st.Ino), nil
}

// fileNumber returns the inode of a file.
func fileNumber(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

// lockPath locks a file. It returns nil if another process holds the lock.
func lockPath(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	err = errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}

// hardLimits returns the hard limits of open files and processes of this process, at most Podman's.
func hardLimits() (files, processes int64) {
	limit := func(resource int, most int64) int64 {
		var l unix.Rlimit
		if unix.Getrlimit(resource, &l) != nil || l.Max > uint64(most) {
			return most
		}
		return int64(l.Max)
	}
	return limit(unix.RLIMIT_NOFILE, 1<<20), limit(unix.RLIMIT_NPROC, podmanProcesses)
}

// kernelBootID returns the kernel's boot id; "" if it cannot be read.
func kernelBootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
