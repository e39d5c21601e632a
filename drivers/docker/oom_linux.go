package docker

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

const (
	kernelLog     = "/dev/kmsg"
	maxLogRecord  = 8 << 10 // the kernel's bound of what one read returns
	maxLogRecords = 1 << 17 // more than the largest buffer of the kernel holds
)

// wasOutOfMemory reports whether the kernel says in its log that it killed a process in the cgroup of a container, because
// that was out of memory. False: it does not say so, or this agent may not read the log. A daemon may not tell: containerd
// drops the event if the cgroup is removed first, and Podman 4 never has it on cgroup v1.
func wasOutOfMemory(containerID string) bool {
	if containerID == "" {
		return false
	}
	fd, err := unix.Open(kernelLog, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	record := make([]byte, maxLogRecord)
	for range maxLogRecords {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue // the kernel has overwritten the oldest records
		case err != nil || n == 0:
			return false // all are read
		case isOutOfMemoryRecord(record[:n], containerID):
			return true
		}
	}
	return false
}

// isOutOfMemoryRecord reports whether a record of the kernel's log says that the cgroup of a container was out of memory.
func isOutOfMemoryRecord(record []byte, containerID string) bool {
	_, kill, ok := bytes.Cut(record, []byte("oom-kill:constraint=CONSTRAINT_MEMCG,"))
	if !ok {
		return false
	}
	_, group, ok := bytes.Cut(kill, []byte("oom_memcg="))
	group, _, _ = bytes.Cut(group, []byte(","))
	return ok && bytes.Contains(group, []byte(containerID))
}
