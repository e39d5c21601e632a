//go:build unix

package local

import "syscall"

// withPrivateMask calls make with a umask that removes access by others. The umask is that of the whole
// process, so files that others make meanwhile are private too.
func withPrivateMask(make func() error) error {
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	return make()
}
