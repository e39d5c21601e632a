package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sectorSize is the size in bytes of the sectors that the kernel counts, whatever the device has.
const sectorSize = 512

// sectorsWritten is the index of the number of written sectors in the statistics of a block device.
const sectorsWritten = 6

// Written returns the number of bytes that a process has had written to storage. The count is that of pages: the
// file system's own journal and a device's larger blocks come on top.
func Written(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, fmt.Errorf("read what process %d has written: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if text, found := strings.CutPrefix(line, "write_bytes: "); found {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read what process %d has written: %w", pid, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("read what process %d has written: no write_bytes", pid)
}

// DeviceWritten returns the number of bytes that were written to the block device of a folder's file system, with
// those of the file system's journal. It returns an error where that is no block device.
func DeviceWritten(dir string) (int64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, fmt.Errorf("find the device of %s: %w", dir, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("find the device of %s: the system does not say", dir)
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
	if err != nil {
		return 0, fmt.Errorf("read what was written to the device of %s: %w", dir, err)
	}
	return parseDeviceStat(string(b))
}

// parseDeviceStat returns the written bytes in the statistics of a block device.
func parseDeviceStat(text string) (int64, error) {
	fields := strings.Fields(text)
	if len(fields) <= sectorsWritten {
		return 0, fmt.Errorf("read the statistics of a device: %d fields", len(fields))
	}
	n, err := strconv.ParseInt(fields[sectorsWritten], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the statistics of a device: %w", err)
	}
	return n * sectorSize, nil
}
