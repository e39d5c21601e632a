package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// writePayload writes the dispatch payload of the job to the file that the task asks for, below its
// local folder. It keeps an existing file: a restarted task may have changed it.
func (t *task) writePayload(s spec) error {
	ask := s.task.DispatchPayload
	if ask == nil || len(s.alloc.Job.Payload) == 0 {
		return nil
	}
	dir := filepath.Join(t.runner.factory.Dirs.Allocs, string(t.runner.id))
	if err := writeOnce(dir, filepath.Join(t.name, "local", ask.File), s.alloc.Job.Payload); err != nil {
		return fmt.Errorf("write the dispatch payload to %s: %w", ask.File, err)
	}
	return nil
}

// writeOnce writes a file below dir atomically, unless it exists. A symbolic link in its path cannot make it
// write outside dir.
func writeOnce(dir, name string, content []byte) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	part := name + ".part"
	if err := root.WriteFile(part, content, 0o600); err != nil {
		return err
	}
	return root.Rename(part, name)
}
