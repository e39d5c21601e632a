//go:build !unix

package local

// withPrivateMask calls make; this system has no umask.
func withPrivateMask(make func() error) error { return make() }
