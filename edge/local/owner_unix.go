//go:build unix

package local

import (
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// ownerOf returns the owner of a file, by name if it has one; false: the file cannot be read.
func ownerOf(path string) (owner, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return owner{}, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return owner{}, false
	}
	need := fs.FileMode(0o060) // a socket must be readable and writable
	if info.IsDir() {
		need = 0o010
	}
	o := owner{
		user: strconv.FormatUint(uint64(st.Uid), 10), group: strconv.FormatUint(uint64(st.Gid), 10),
		groupCanUse: info.Mode().Perm()&need == need,
	}
	if u, err := user.LookupId(o.user); err == nil {
		o.user = u.Username
	}
	if g, err := user.LookupGroupId(o.group); err == nil {
		o.group = g.Name
	}
	return o, true
}
