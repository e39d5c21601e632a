//go:build !linux

package durable

import (
	"errors"
	"os"
)

// FreeSpace is written for Linux.
func FreeSpace(string) (free, total int64, err error) {
	return 0, 0, errors.New("read free disk space: not supported on this system")
}

// FreeInodes is written for Linux.
func FreeInodes(string) (free, total int64, err error) {
	return 0, 0, errors.New("read free inodes: not supported on this system")
}

// Allocate gives a file so many bytes, for which the disk has room from then on.
func Allocate(f *os.File, size int64) error { return writeZeros(f, size) }
