//go:build !linux

package qemu

// checkPrivate returns an error: the driver does not work on this system.
func checkPrivate(string) error { return errUnsupported() }
