//go:build !linux

package dockertest

// unmountBelow does nothing: the daemons run on Linux only.
func unmountBelow(string) error { return nil }
