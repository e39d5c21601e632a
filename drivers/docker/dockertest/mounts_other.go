//go:build !linux

package dockertest

// UnmountBelow does nothing: the daemons run on Linux only.
func UnmountBelow(string) error { return nil }
