package fingerprint

import (
	"fmt"
	"path/filepath"

	"skerry/fleet/usage"

	"golang.org/x/sys/unix"
)

// disk is the file system of the data directory: its size and its device.
type disk struct {
	bytes  uint64
	volume string // the device; "": not known
}

// readDisk returns the size and the device of the disk that dir lies on, but not its free space, which changes
// all the time.
func readDisk(root, dir string) (disk, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return disk{}, fmt.Errorf("find data directory: %w", err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return disk{}, fmt.Errorf("read size of disk at %s: %w", path, err)
	}
	return disk{
		bytes:  st.Blocks * uint64(st.Bsize),
		volume: volumeOf(readLines(root, "proc/self/mountinfo"), path),
	}, nil
}

// readUse returns the present usage of the disk that dir lies on.
func readUse(root, dir string) (usage.HostDisk, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return usage.HostDisk{}, fmt.Errorf("find %s: %w", dir, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return usage.HostDisk{}, fmt.Errorf("read use of disk at %s: %w", path, err)
	}
	d := diskUse(st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree, uint64(st.Bsize))
	d.Device, d.Mountpoint = volumeOf(readLines(root, "proc/self/mountinfo"), path), path
	return d, nil
}
