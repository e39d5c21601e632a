package jobfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"skerry/fleet"
)

// maxFileSet bounds how many files one pattern names.
const maxFileSet = 1_000

// Folder is the folder of a job file: the names of the files that it reads are relative to it.
type Folder string

// FolderOf returns the folder of a job file; for "-", the standard input, it is where the command runs.
func FolderOf(file string) Folder { return Folder(filepath.Dir(file)) }

// Read returns a file's content.
func (f Folder) Read(name string) ([]byte, error) {
	at, err := f.resolvePath(name)
	if err != nil {
		return nil, err
	}
	return ReadFile(at)
}

// Exists reports whether there is a file.
func (f Folder) Exists(name string) (bool, error) {
	at, err := f.resolvePath(name)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a file", at)
	}
	return true, nil
}

// Match lists the files below a folder whose names are like a pattern; ** is any folders.
func (f Folder) Match(below, pattern string) ([]string, error) {
	at, err := f.resolvePath(below)
	if err != nil {
		return nil, err
	}
	pattern = path.Clean(filepath.ToSlash(pattern))
	if !doublestar.ValidatePattern(pattern) || !fs.ValidPath(pattern) {
		return nil, fmt.Errorf("%q is not a pattern of files below a folder: write it like *.conf or **/*.conf", pattern)
	}
	var names []string
	err = doublestar.GlobWalk(os.DirFS(at), pattern, func(name string, d fs.DirEntry) error {
		if info, err := fs.Stat(os.DirFS(at), name); err != nil || !info.Mode().IsRegular() {
			return err
		}
		if names = append(names, name); len(names) > maxFileSet {
			return fmt.Errorf("%s/%s matches more than %d files", at, pattern, maxFileSet)
		}
		return nil
	})
	return names, err
}

// Absolute is from where the command runs, not from the job file on.
func (Folder) Absolute(name string) (string, error) {
	at, err := filepath.Abs(name)
	return filepath.ToSlash(at), err
}

// Expand replaces ~ by the home of whoever runs the command.
func (Folder) Expand(name string) (string, error) {
	rest, ok := strings.CutPrefix(name, "~")
	if !ok {
		return name, nil
	}
	if rest != "" && rest[0] != '/' && rest[0] != filepath.Separator {
		return "", fmt.Errorf("%s: only the user's own home folder is known: ~/…", name)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &fleet.Error{Code: fleet.CodeInvalid, Message: fmt.Sprintf("expand %s: %s", name, err)}
	}
	return filepath.Join(home, rest), nil
}

// resolvePath is where a name leads to.
func (f Folder) resolvePath(name string) (string, error) {
	at, err := f.Expand(name)
	if err == nil && !filepath.IsAbs(at) {
		at = filepath.Join(string(f), at)
	}
	return at, err
}
