package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"skerry/edge/runner"
)

// File is a file of an allocation that ReplaceFile writes. Without Uid and Gid it belongs to the agent's user.
type File struct {
	Text     string
	Mode     fs.FileMode
	Uid, Gid *int
}

// ReplaceFile writes a file as a whole, at a path that Destination has returned. It writes nothing if the file has that
// mode and content already, so that a full disk cannot delay a restart.
func ReplaceFile(p *runner.Preparation, dest string, file File) (err error) {
	root, err := os.OpenRoot(filepath.Dir(p.Config.Dir))
	if err != nil {
		return fmt.Errorf("write %s: %w", dest, err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if isWritten(root, dest, file) {
		return nil
	}
	if err := root.MkdirAll(path.Dir(dest), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", dest, err)
	}
	part := path.Join(path.Dir(dest), "."+path.Base(dest)+".part")
	if err := root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", dest, err)
	}
	f, err := root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", dest, err)
	}
	_, err = f.WriteString(file.Text)
	if err == nil && (file.Uid != nil || file.Gid != nil) {
		err = f.Chown(idOf(file.Uid), idOf(file.Gid))
	}
	if err = errors.Join(err, f.Chmod(file.Mode), f.Close()); err == nil {
		err = root.Rename(part, dest)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", dest, err)
	}
	return nil
}

// OpenFile opens a regular file for reading, at a path that Destination has returned. It waits for no writer of a pipe that a task has
// put there: such a wait would have no end.
func OpenFile(p *runner.Preparation, dest string) (*os.File, error) {
	root, err := os.OpenRoot(filepath.Dir(p.Config.Dir))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.FromSlash(dest), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: it is no regular file", dest)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isWritten reports whether a file has the mode and the content already.
func isWritten(root *os.Root, name string, file File) bool {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != file.Mode.Perm() || info.Size() != int64(len(file.Text)) {
		return false
	}
	old, err := root.ReadFile(name)
	return err == nil && string(old) == file.Text
}

// idOf returns an id for chown: -1, which changes nothing, for nil.
func idOf(id *int) int {
	if id == nil {
		return -1
	}
	return *id
}
