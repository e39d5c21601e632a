package local

import (
	"net"
	"os/user"
	"strconv"
	"syscall"
)

// peerUser returns the user at the other end.
func peerUser(c *net.UnixConn) Peer {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}
	}
	var cred *syscall.Ucred
	failed := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if failed != nil || err != nil || cred == nil {
		return Peer{}
	}
	id := strconv.FormatUint(uint64(cred.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return Peer{User: u.Username, UID: id}
	}
	return Peer{UID: id}
}
