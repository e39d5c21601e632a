//go:build !unix

package volumes

import "os"

// DefaultLockDir returns "": folders are not locked on this system.
func DefaultLockDir() string { return "" }

// lockName returns "": a folder has no lock here.
func lockName(os.FileInfo) string { return "" }

// deviceOf returns 0: the device is not known here.
func deviceOf(os.FileInfo) uint64 { return 0 }

// isPrivate is never needed here.
func isPrivate(os.FileInfo) bool { return false }
