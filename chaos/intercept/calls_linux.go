package intercept

import (
	"maps"

	"golang.org/x/sys/unix"
)

// form says which arguments of a system call name the file that it changes.
type form struct {
	name string
	fd   int // index of the argument with the descriptor of the file, or of the folder of path; -1: the working directory
	path int // index of the argument with a path; -1: fd is the file
	data int // index of the argument with the bytes to write, before the one with their number; -1: none
	// flags is the index of the argument with the flags of an open; 0: none. Without O_CREAT or O_TRUNC an open
	// changes nothing.
	flags int
	grow  bool // the call may need space
}

// calls are the system calls that may change a file, by number.
var calls = mergeCalls(common, older)

func mergeCalls(tables ...map[uint32]form) map[uint32]form {
	all := map[uint32]form{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// common are the calls of all machines.
var common = map[uint32]form{
	unix.SYS_WRITE:           {name: "write", fd: 0, path: -1, data: 1, grow: true},
	unix.SYS_PWRITE64:        {name: "pwrite", fd: 0, path: -1, data: 1, grow: true},
	unix.SYS_WRITEV:          {name: "writev", fd: 0, path: -1, data: -1, grow: true},
	unix.SYS_PWRITEV:         {name: "pwritev", fd: 0, path: -1, data: -1, grow: true},
	unix.SYS_COPY_FILE_RANGE: {name: "copy_file_range", fd: 2, path: -1, data: -1, grow: true},
	unix.SYS_SENDFILE:        {name: "sendfile", fd: 0, path: -1, data: -1, grow: true},
	unix.SYS_SPLICE:          {name: "splice", fd: 2, path: -1, data: -1, grow: true},
	unix.SYS_FALLOCATE:       {name: "fallocate", fd: 0, path: -1, data: -1, grow: true},
	unix.SYS_FTRUNCATE:       {name: "truncate", fd: 0, path: -1, data: -1},
	unix.SYS_TRUNCATE:        {name: "truncate", fd: -1, path: 0, data: -1},
	unix.SYS_FSYNC:           {name: "fsync", fd: 0, path: -1, data: -1},
	unix.SYS_FDATASYNC:       {name: "fsync", fd: 0, path: -1, data: -1},
	unix.SYS_SYNC_FILE_RANGE: {name: "fsync", fd: 0, path: -1, data: -1},
	unix.SYS_SYNCFS:          {name: "syncfs", fd: 0, path: -1, data: -1},
	unix.SYS_OPENAT:          {name: "open", fd: 0, path: 1, data: -1, flags: 2, grow: true},
	unix.SYS_MKDIRAT:         {name: "mkdir", fd: 0, path: 1, data: -1, grow: true},
	unix.SYS_MKNODAT:         {name: "mknod", fd: 0, path: 1, data: -1, grow: true},
	unix.SYS_RENAMEAT:        {name: "rename", fd: 2, path: 3, data: -1, grow: true},
	unix.SYS_RENAMEAT2:       {name: "rename", fd: 2, path: 3, data: -1, grow: true},
	unix.SYS_LINKAT:          {name: "link", fd: 2, path: 3, data: -1, grow: true},
	unix.SYS_SYMLINKAT:       {name: "symlink", fd: 1, path: 2, data: -1, grow: true},
	unix.SYS_UNLINKAT:        {name: "unlink", fd: 0, path: 1, data: -1},
	unix.SYS_FCHMOD:          {name: "chmod", fd: 0, path: -1, data: -1},
	unix.SYS_FCHMODAT:        {name: "chmod", fd: 0, path: 1, data: -1},
	unix.SYS_FCHOWN:          {name: "chown", fd: 0, path: -1, data: -1},
	unix.SYS_FCHOWNAT:        {name: "chown", fd: 0, path: 1, data: -1},
	unix.SYS_UTIMENSAT:       {name: "utimes", fd: 0, path: 1, data: -1},
}
