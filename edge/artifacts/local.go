package artifacts

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skerry/edge/store"
	"skerry/fleet"
)

// hasLocal reports whether the source's file exists on this edge.
func (f *Fetcher) hasLocal(s *Source) bool {
	_, err := os.Stat(s.path)
	return err == nil
}

// copyLocal copies a file or a folder of the edge into a download.
func (f *Fetcher) copyLocal(ctx context.Context, s *Source, d *store.Download) (string, error) {
	if err := d.Restart(""); err != nil {
		return "", err
	}
	path, err := filepath.EvalSymlinks(s.path)
	if err != nil {
		return "", fmt.Errorf("it is not on this edge: %w", err)
	}
	if f.cfg.Hidden != "" {
		hidden, err := filepath.EvalSymlinks(f.cfg.Hidden)
		if err != nil {
			return "", err
		}
		if rel, err := filepath.Rel(hidden, path); err == nil && filepath.IsLocal(rel) {
			return "", fleet.Errorf(fleet.CodeForbidden, "it lies in the edge's own data, which no task may have")
		}
		if rel, err := filepath.Rel(path, hidden); err == nil && filepath.IsLocal(rel) {
			return "", fleet.Errorf(fleet.CodeForbidden, "the edge's own data lies in it, which no task may have")
		}
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case info.IsDir():
		return treeName, writeTree(ctx, path, d)
	case !info.Mode().IsRegular():
		return "", fleet.Errorf(fleet.CodeInvalid, "it is no file and no folder, but %s", info.Mode().Type())
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	return s.fileName(), errors.Join(copyAll(ctx, d, file), file.Close())
}

// writeTree writes a folder as a tar. Its bytes depend only on names, contents and modes. Folders named .git are left
// out.
func writeTree(ctx context.Context, folder string, to io.Writer) error {
	out := tar.NewWriter(to)
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == ".":
			return nil
		case e.Name() == ".git":
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return writeTreeEntry(ctx, out, root, name)
	})
	return errors.Join(err, out.Close(), root.Close())
}

func writeTreeEntry(ctx context.Context, out *tar.Writer, root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: filepath.ToSlash(name), Mode: int64(info.Mode().Perm()), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case info.Mode().IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, filepath.ToSlash(target)
		if strings.HasPrefix(h.Linkname, "/") {
			return escapes(h.Name, h.Linkname)
		}
	default:
		return fleet.Errorf(fleet.CodeInvalid, "the source folder holds %s, which is a device, a pipe or another special file", name).
			WithHint("remove the file, or offer the other files in a folder of their own")
	}
	if err := out.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	left := info.Size()
	_, err = io.Copy(out, bounded{ctx, io.LimitReader(file, info.Size()), &left})
	return errors.Join(err, file.Close())
}
