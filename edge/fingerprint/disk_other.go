//go:build !linux

package fingerprint

import (
	"errors"

	"skerry/fleet/usage"
)

// disk is the file system of the data directory: its size and its device.
type disk struct {
	bytes  uint64
	volume string
}

// readDisk returns an error: it is implemented on Linux only. Elsewhere the size of the disk is configured.
func readDisk(string, string) (disk, error) {
	return disk{}, errors.New("read size of disk: not supported on this system")
}

// readUse returns an error: it is implemented on Linux only.
func readUse(string, string) (usage.HostDisk, error) {
	return usage.HostDisk{}, errors.New("read use of disk: not supported on this system")
}
