package wasm

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	wasisys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	wasmsys "github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// sandbox is a folder that a module sees. A module could leave wazero's own folders through a symbolic link, so each
// path is opened below an os.Root, which prevents that.
type sandbox struct {
	wasisys.UnimplementedFS
	root     *os.Root
	readOnly bool
	files    wasisys.FS // /proc/self/fd, to open again a file that the root has opened
}

// openSandbox opens a folder for a module.
func openSandbox(dir string, readOnly bool) (*sandbox, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open folder: %w", err)
	}
	return &sandbox{root: root, readOnly: readOnly, files: sysfs.DirFS("/proc/self/fd")}, nil
}

// local returns a guest's path in the form for an os.Root: relative, without a slash at its end.
func local(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}

// errnoOf converts an error of the root. For a path that leads outside it returns EPERM.
func errnoOf(err error) wasisys.Errno {
	if err == nil {
		return 0
	}
	var perr *fs.PathError
	if errors.As(err, &perr) && strings.Contains(perr.Err.Error(), "escapes") {
		return wasisys.EPERM
	}
	return wasisys.UnwrapOSError(err)
}

// refuseChange returns an error if the folder is read-only.
func (s *sandbox) refuseChange() wasisys.Errno {
	if s.readOnly {
		return wasisys.EROFS
	}
	return 0
}

// anchoredFile is an open file together with the root's descriptor, through which wazero opened it.
type anchoredFile struct {
	wasisys.File
	anchor *os.File
}

// Close closes the file and the descriptor.
func (f *anchoredFile) Close() wasisys.Errno {
	errno := f.File.Close()
	if err := f.anchor.Close(); err != nil && errno == 0 {
		errno = wasisys.UnwrapOSError(err)
	}
	return errno
}

// OpenFile opens or makes a file below the root.
func (s *sandbox) OpenFile(name string, flag wasisys.Oflag, perm fs.FileMode) (wasisys.File, wasisys.Errno) {
	const changes = wasisys.O_RDWR | wasisys.O_WRONLY | wasisys.O_CREAT | wasisys.O_TRUNC | wasisys.O_APPEND
	if s.readOnly && flag&changes != 0 {
		return nil, wasisys.EROFS
	}
	anchor, err := s.root.OpenFile(local(name), openFlags(flag), perm.Perm())
	if err != nil {
		return nil, errnoOf(err)
	}
	if info, err := anchor.Stat(); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		_ = anchor.Close()
		return nil, wasisys.EPERM // a device or a FIFO is no file of a module
	}
	again := flag &^ (wasisys.O_CREAT | wasisys.O_EXCL | wasisys.O_TRUNC | wasisys.O_NOFOLLOW)
	file, errno := s.files.OpenFile(strconv.Itoa(int(anchor.Fd())), again, 0)
	if errno != 0 {
		_ = anchor.Close()
		return nil, errno
	}
	return &anchoredFile{file, anchor}, 0
}

// openFlags converts flags to those of package os.
func openFlags(flag wasisys.Oflag) int {
	out := os.O_RDONLY
	switch {
	case flag&wasisys.O_RDWR != 0:
		out = os.O_RDWR
	case flag&wasisys.O_WRONLY != 0:
		out = os.O_WRONLY
	}
	for _, f := range []struct {
		wasi wasisys.Oflag
		os   int
	}{
		{wasisys.O_APPEND, os.O_APPEND}, {wasisys.O_CREAT, os.O_CREATE}, {wasisys.O_EXCL, os.O_EXCL},
		{wasisys.O_TRUNC, os.O_TRUNC}, {wasisys.O_SYNC, os.O_SYNC},
		{wasisys.O_DIRECTORY, unix.O_DIRECTORY}, {wasisys.O_NOFOLLOW, unix.O_NOFOLLOW},
	} {
		if flag&f.wasi != 0 {
			out |= f.os
		}
	}
	return out | unix.O_NONBLOCK // opening a FIFO must not block; OpenFile then refuses it
}

// Lstat describes a path without following a link at its end.
func (s *sandbox) Lstat(name string) (wasmsys.Stat_t, wasisys.Errno) {
	info, err := s.root.Lstat(local(name))
	if err != nil {
		return wasmsys.Stat_t{}, errnoOf(err)
	}
	return wasmsys.NewStat_t(info), 0
}

// Stat describes a path.
func (s *sandbox) Stat(name string) (wasmsys.Stat_t, wasisys.Errno) {
	info, err := s.root.Stat(local(name))
	if err != nil {
		return wasmsys.Stat_t{}, errnoOf(err)
	}
	return wasmsys.NewStat_t(info), 0
}

// Mkdir makes a folder.
func (s *sandbox) Mkdir(name string, perm fs.FileMode) wasisys.Errno {
	if errno := s.refuseChange(); errno != 0 {
		return errno
	}
	return errnoOf(s.root.Mkdir(local(name), perm.Perm()))
}

// Chmod changes the permissions of a path; other bits are left out.
func (s *sandbox) Chmod(name string, perm fs.FileMode) wasisys.Errno {
	if errno := s.refuseChange(); errno != 0 {
		return errno
	}
	return errnoOf(s.root.Chmod(local(name), perm.Perm()))
}

// Rename moves a path within the folder.
func (s *sandbox) Rename(from, to string) wasisys.Errno {
	if errno := s.refuseChange(); errno != 0 {
		return errno
	}
	return errnoOf(s.root.Rename(local(from), local(to)))
}

// Rmdir removes an empty folder.
func (s *sandbox) Rmdir(name string) wasisys.Errno { return s.removeEntry(name, true) }

// Unlink removes a file.
func (s *sandbox) Unlink(name string) wasisys.Errno { return s.removeEntry(name, false) }

// removeEntry removes a file, or a folder if folder is set.
func (s *sandbox) removeEntry(name string, folder bool) wasisys.Errno {
	if errno := s.refuseChange(); errno != 0 {
		return errno
	}
	info, err := s.root.Lstat(local(name))
	switch {
	case err != nil:
		return errnoOf(err)
	case folder && !info.IsDir():
		return wasisys.ENOTDIR
	case !folder && info.IsDir():
		return wasisys.EISDIR
	}
	return errnoOf(s.root.Remove(local(name)))
}

// Link makes a hard link within the folder.
func (s *sandbox) Link(from, to string) wasisys.Errno {
	if errno := s.refuseChange(); errno != 0 {
		return errno
	}
	return errnoOf(s.root.Link(local(from), local(to)))
}

// Symlink makes a symbolic link. A link that leads outside can be made but not followed.
func (s *sandbox) Symlink(target, name string) wasisys.Errno {
	if errno := s.refuseChange(); errno != 0 {
		return errno
	}
	return errnoOf(s.root.Symlink(target, local(name)))
}

// Readlink returns the target of a symbolic link.
func (s *sandbox) Readlink(name string) (string, wasisys.Errno) {
	target, err := s.root.Readlink(local(name))
	return target, errnoOf(err)
}

// Utimens sets the times of a path, in nanoseconds since 1970; UTIME_OMIT leaves one as it is.
func (s *sandbox) Utimens(name string, accessed, modified int64) wasisys.Errno {
	if errno := s.refuseChange(); errno != 0 {
		return errno
	}
	return errnoOf(s.root.Chtimes(local(name), timeOf(accessed), timeOf(modified)))
}

// timeOf converts a time; the zero time leaves it unchanged.
func timeOf(ns int64) time.Time {
	if ns == wasisys.UTIME_OMIT || ns == math.MinInt64 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
