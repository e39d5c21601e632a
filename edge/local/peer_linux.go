package local

import (
	"net"
	"os/user"
	"strconv"
	"syscall"
)

// peerUser returns the name of the user at the other end, or the number if there is no name; "": not known.
func peerUser(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	var cred *syscall.Ucred
	failed := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if failed != nil || err != nil || cred == nil {
		return ""
	}
	id := strconv.FormatUint(uint64(cred.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}
