//go:build !linux

package docker

import (
	"errors"
	"os"
)

// errNotLinux is the error of everything that only works on Linux.
var errNotLinux = errors.New("containers run on Linux only")

func identity(string) (string, error) { return "", errNotLinux }

func fileNumber(os.FileInfo) uint64 { return 0 }

func lockPath(string) (*os.File, error) { return nil, errNotLinux }

func hardLimits() (files, processes int64) { return 1 << 20, 1 << 15 }

func processesOf(string) ([]int, error) { return nil, nil }

func killInContainer(int, string) {}

func kernelBootID() string { return "" }

func wasOutOfMemory(string) bool { return false }
