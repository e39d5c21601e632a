package intercept

import "golang.org/x/sys/unix"

// auditArch is the kernel's name for this machine.
const auditArch = unix.AUDIT_ARCH_X86_64

// older are the calls without a folder's descriptor. SQLite uses them: it is C code translated to Go.
var older = map[uint32]form{
	unix.SYS_OPEN:    {name: "open", fd: -1, path: 0, data: -1, flags: 1, grow: true},
	unix.SYS_CREAT:   {name: "open", fd: -1, path: 0, data: -1, grow: true},
	unix.SYS_MKDIR:   {name: "mkdir", fd: -1, path: 0, data: -1, grow: true},
	unix.SYS_MKNOD:   {name: "mknod", fd: -1, path: 0, data: -1, grow: true},
	unix.SYS_RENAME:  {name: "rename", fd: -1, path: 1, data: -1, grow: true},
	unix.SYS_LINK:    {name: "link", fd: -1, path: 1, data: -1, grow: true},
	unix.SYS_SYMLINK: {name: "symlink", fd: -1, path: 1, data: -1, grow: true},
	unix.SYS_UNLINK:  {name: "unlink", fd: -1, path: 0, data: -1},
	unix.SYS_RMDIR:   {name: "unlink", fd: -1, path: 0, data: -1},
	unix.SYS_CHMOD:   {name: "chmod", fd: -1, path: 0, data: -1},
	unix.SYS_CHOWN:   {name: "chown", fd: -1, path: 0, data: -1},
	unix.SYS_UTIMES:  {name: "utimes", fd: -1, path: 0, data: -1},
}
