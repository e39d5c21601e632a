package intercept

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Call is a system call that is about to change a file. It is valid until the handler returns.
type Call struct {
	Name  string // of the system call; equivalent calls share a name
	Path  string // of the file, relative to the folder
	Child bool   // a child of the program makes the call
	Grows bool   // the call may need space on the disk

	folder string // the watched folder
	thread int
	form   form
	args   [6]uint64
}

// Kind names a class of calls: by the caller, the name of the call, and the pattern of the path.
func (c *Call) Kind() string {
	by := "agent"
	if c.Child {
		by = "child"
	}
	return by + " " + c.Name + " " + Pattern(c.Path)
}

// readCall returns the call of a notification. ok is false if the call changes no file below the folder, or another
// program makes it.
func (t *Target) readCall(n *notification) (c *Call, ok bool) {
	c = &Call{folder: t.folder, thread: int(n.pid), form: calls[n.number], args: n.args}
	path, err := c.readPath()
	if err != nil {
		return nil, false // the call names no file, or will fail
	}
	if c.Path, ok = strings.CutPrefix(path, t.folder+"/"); !ok {
		return nil, false
	}
	if program, err := os.Readlink(c.procFile("exe")); err != nil || program != t.program {
		return nil, false
	}
	c.Name, c.Grows = c.form.name, c.form.grow
	if !c.changesFile(path) {
		return nil, false
	}
	_, err = os.Stat(fmt.Sprintf("/proc/%d/task/%d", t.PID(), c.thread))
	c.Child = err != nil
	return c, true
}

// changesFile predicts whether a call changes something: an open may find the file, a removal may find none, and a
// folder may exist already.
func (c *Call) changesFile(path string) bool {
	switch {
	case c.form.flags > 0:
		info, err := os.Lstat(path)
		return err != nil || c.args[c.form.flags]&unix.O_TRUNC != 0 && info.Size() > 0
	case c.Name == "mkdir", c.Name == "unlink":
		_, err := os.Lstat(path)
		return (err == nil) == (c.Name == "unlink")
	}
	return true
}

// procFile returns the path of a file about the thread that makes the call.
func (c *Call) procFile(name string) string { return "/proc/" + strconv.Itoa(c.thread) + "/" + name }

// readPath returns the absolute path of the file that the call would change.
func (c *Call) readPath() (string, error) {
	if c.form.path < 0 {
		fd := c.procFile("fd/" + strconv.Itoa(int(int32(c.args[c.form.fd]))))
		path, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(path, c.folder+"/") {
			return "", err
		}
		if info, err := os.Stat(fd); err != nil || !info.Mode().IsRegular() && !info.IsDir() {
			return "", err // a pipe or socket is not on the disk
		}
		return strings.TrimSuffix(path, " (deleted)"), nil
	}
	name, err := c.readString(c.args[c.form.path])
	if err != nil || filepath.IsAbs(name) {
		return resolveFolder(name), err
	}
	at := "cwd"
	if c.form.fd >= 0 && int32(c.args[c.form.fd]) != unix.AT_FDCWD {
		at = "fd/" + strconv.Itoa(int(int32(c.args[c.form.fd])))
	}
	folder, err := os.Readlink(c.procFile(at))
	return resolveFolder(filepath.Join(folder, name)), err
}

// resolveFolder resolves links in the path of a file, except in its last element.
func resolveFolder(path string) string {
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(folder, filepath.Base(path))
	}
	return path
}

// readString reads a string of the process up to its zero byte.
func (c *Call) readString(at uint64) (string, error) {
	b := make([]byte, unix.PathMax)
	n, err := c.readMemory(b, at)
	if end := bytes.IndexByte(b[:n], 0); end >= 0 {
		return string(b[:end]), nil
	}
	return "", errors.Join(errors.New("read a path: it does not end"), err)
}

// readMemory reads memory of the process. It may return fewer bytes, because the following page may not be mapped.
func (c *Call) readMemory(b []byte, at uint64) (int, error) {
	f, err := os.Open(c.procFile("mem"))
	if err != nil {
		return 0, err
	}
	n, err := f.ReadAt(b, int64(at))
	return n, errors.Join(err, f.Close())
}

// PerformHalf performs the first half of a write, and makes everything on the file's disk durable. It performs nothing
// of a call that is no write.
func (c *Call) PerformHalf() error {
	file, err := c.openFile()
	if err != nil {
		return fmt.Errorf("perform half of %s: %w", c.Kind(), err)
	}
	defer func() { _ = file.Close() }()
	if c.form.data >= 0 {
		err = c.writeHalf(file)
	}
	if err == nil {
		err = unix.Syncfs(int(file.Fd()))
	}
	if err != nil {
		return fmt.Errorf("perform half of %s: %w", c.Kind(), err)
	}
	return nil
}

// writeHalf writes the first half of the call's bytes to their place in the file.
func (c *Call) writeHalf(file *os.File) error {
	b := make([]byte, c.args[c.form.data+1]/2)
	n, err := c.readMemory(b, c.args[c.form.data])
	if n < len(b) {
		return errors.Join(errors.New("the bytes to write cannot be read"), err)
	}
	if c.Name == "pwrite" {
		_, err = unix.Pwrite(int(file.Fd()), b, int64(c.args[3]))
	} else {
		_, err = unix.Write(int(file.Fd()), b)
	}
	return err
}

// openFile returns the process's own file description, or the watched folder if the call has no descriptor.
func (c *Call) openFile() (*os.File, error) {
	if c.form.path >= 0 {
		return os.Open(c.folder)
	}
	process, err := c.processID()
	if err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(process, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", process, err)
	}
	fd, err := unix.PidfdGetfd(pidfd, int(int32(c.args[c.form.fd])), 0)
	if err = errors.Join(err, unix.Close(pidfd)); err != nil {
		return nil, fmt.Errorf("get a file of process %d: %w", process, err)
	}
	return os.NewFile(uintptr(fd), c.Path), nil
}

// processID returns the id of the process whose thread makes the call.
func (c *Call) processID() (int, error) {
	b, err := os.ReadFile(c.procFile("status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if id, ok := strings.CutPrefix(line, "Tgid:"); ok {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, fmt.Errorf("thread %d has no process", c.thread)
}
