//go:build unix

package local

import "syscall"

// withPrivateMask calls make with a umask under which nothing that it makes is for others
// than its owner. The umask is the whole process's: what others make meanwhile is private, too.
func withPrivateMask(make func() error) error {
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	return make()
}
