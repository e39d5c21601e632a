package artifacts

import (
	"archive/tar"
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"skerry/fleet"
)

// Limits bound the size and the number of files of an unpacked artifact.
type Limits struct {
	Bytes int64
	Files int
}

const (
	maxNameLength = 4096
	maxDepth      = 200 // nested folders
)

// errOneFile is returned at the second file of an archive that must hold exactly one.
var errOneFile = fleet.Errorf(fleet.CodeInvalid, "the archive holds more than one file, and mode = \"file\" takes one").
	WithHint("leave mode out, or write archive = false")

// treeWriter writes the files of an archive below a folder. It writes nothing outside of it.
type treeWriter struct {
	ctx    context.Context
	root   *os.Root
	under  []string // pattern of the folders whose content is unpacked; empty means all
	single string   // new name of the archive's only file; "" means that files keep their names
	left   Limits
	limits Limits
	wrote  int
	links  []string
	mask   *layerMask // of the layers of an image; nil: an archive is unpacked
}

// unpackTree unpacks an archive of files.
func (t *treeWriter) unpackTree(f *os.File, format string) error {
	var err error
	if format == "zip" {
		err = t.unpackZip(f)
	} else {
		err = t.unpackTar(f, format)
	}
	if err != nil {
		return err
	}
	return t.finishTree()
}

// finishTree checks what was written as a whole.
func (t *treeWriter) finishTree() error {
	err := t.checkLinks()
	if err == nil && t.wrote == 0 && (len(t.under) > 0 || t.single != "") {
		err = fleet.Errorf(fleet.CodeInvalid, "the archive has no %q", strings.Join(t.under, "/"))
	}
	return err
}

func (t *treeWriter) unpackTar(f *os.File, format string) error {
	r, closeReader, err := decompress(format, f)
	if err != nil {
		return badArchive(err)
	}
	defer closeReader()
	for archive := tar.NewReader(bounded{t.ctx, r, &t.left.Bytes}); ; {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return badArchive(err)
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader:
			continue
		case tar.TypeDir, tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
		default:
			return fleet.Errorf(fleet.CodeInvalid, "the archive holds %q, which is a device, a pipe or another special file", h.Name)
		}
		if err := t.writeEntry(entry{h.Name, h.Typeflag, h.FileInfo().Mode(), h.Linkname, archive}); err != nil {
			return err
		}
	}
}

func (t *treeWriter) unpackZip(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	archive, err := zip.NewReader(f, info.Size())
	if err != nil {
		return badArchive(err)
	}
	for _, z := range archive.File {
		if err := t.unpackZipped(z); err != nil {
			return err
		}
	}
	return nil
}

func (t *treeWriter) unpackZipped(z *zip.File) error {
	mode := z.Mode()
	e := entry{name: z.Name, mode: mode}
	switch {
	case mode.IsDir():
		e.kind = tar.TypeDir
		return t.writeEntry(e)
	case mode.IsRegular():
		e.kind = tar.TypeReg
	case mode&fs.ModeSymlink != 0:
		e.kind = tar.TypeSymlink
	default:
		return fleet.Errorf(fleet.CodeInvalid, "the archive holds %q, which is a device, a pipe or another special file", z.Name)
	}
	r, err := z.Open()
	if err != nil {
		return badArchive(err)
	}
	e.content = bounded{t.ctx, r, &t.left.Bytes}
	if e.kind == tar.TypeSymlink {
		target, err := io.ReadAll(io.LimitReader(e.content, maxNameLength+1))
		if err != nil {
			return errors.Join(badArchive(err), r.Close())
		}
		e.target = string(target)
	}
	return errors.Join(t.writeEntry(e), r.Close())
}

// entry is a file, a folder or a link of an archive.
type entry struct {
	name    string
	kind    byte // as in a tar
	mode    fs.FileMode
	target  string // of a symbolic or hard link
	content io.Reader
}

// writeEntry writes one entry. It replaces an existing file.
func (t *treeWriter) writeEntry(e entry) error {
	name, err := localName(e.name)
	if err != nil {
		return err
	}
	if t.left.Files--; t.left.Files < 0 {
		return fleet.Errorf(fleet.CodeInvalid, "the archive holds more than %d files", t.limits.Files)
	}
	if t.mask != nil {
		if hidden, err := t.mask.hidesEntry(name, e.kind); hidden || err != nil {
			return err
		}
	}
	name, ok := t.nameBelow(name)
	if !ok || name == "." {
		return nil
	}
	if e.kind == tar.TypeDir {
		if t.single != "" {
			return nil
		}
		return t.mkdirAll(name)
	}
	t.wrote++
	if t.single != "" {
		if t.wrote > 1 {
			return errOneFile
		}
		name = t.single
	}
	if err := t.mkdirAll(path.Dir(name)); err != nil {
		return err
	}
	if err := t.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	switch e.kind {
	case tar.TypeSymlink:
		return t.writeLink(name, e.target)
	case tar.TypeLink:
		return t.writeHardLink(name, e.target)
	}
	return writeFile(t.root, name, e.mode, e.content)
}

func (t *treeWriter) mkdirAll(name string) error {
	if err := t.root.MkdirAll(name, 0o755); err != nil {
		return fmt.Errorf("unpack the folder %s: %w", name, err)
	}
	return nil
}

// nameBelow returns the name of an entry relative to the unpacked folder, and whether the entry lies in it.
func (t *treeWriter) nameBelow(name string) (string, bool) {
	if len(t.under) == 0 {
		return name, true
	}
	parts := strings.Split(name, "/")
	if len(parts) < len(t.under) {
		return "", false
	}
	for i, pattern := range t.under {
		if ok, err := path.Match(pattern, parts[i]); err != nil || !ok {
			return "", false
		}
	}
	if len(parts) == len(t.under) {
		if t.single != "" {
			return parts[len(parts)-1], true
		}
		return ".", true
	}
	return path.Join(parts[len(t.under):]...), true
}

// writeLink writes a symbolic link, whose target must lie below the folder.
func (t *treeWriter) writeLink(name, target string) error {
	to := path.Join(path.Dir(name), target)
	if target == "" || path.IsAbs(target) || !filepath.IsLocal(filepath.FromSlash(to)) || len(target) > maxNameLength {
		return escapes(name, target)
	}
	if err := t.root.Symlink(target, name); err != nil {
		return fmt.Errorf("unpack the link %s: %w", name, err)
	}
	t.links = append(t.links, name)
	return nil
}

func (t *treeWriter) writeHardLink(name, target string) error {
	old, err := localName(target)
	if err != nil {
		return err
	}
	old, ok := t.nameBelow(old)
	if !ok || t.single != "" {
		return fleet.Errorf(fleet.CodeInvalid, "the archive's %q is a hard link to %q, which is not unpacked", name, target)
	}
	if info, err := t.root.Lstat(old); err != nil || !info.Mode().IsRegular() {
		return fleet.Errorf(fleet.CodeInvalid, "the archive's %q is a hard link to %q, which is no earlier file of the archive", name, target)
	}
	if err := t.root.Link(old, name); err != nil {
		return fmt.Errorf("unpack the link %s: %w", name, err)
	}
	return nil
}

// checkLinks follows every link after all of them are written: a chain of links must not lead outside.
func (t *treeWriter) checkLinks() error {
	for _, name := range t.links {
		_, err := t.root.Stat(name)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		target, _ := t.root.Readlink(name)
		for _, link := range t.links {
			if err := t.root.Remove(link); err != nil {
				return fmt.Errorf("remove the link %s: %w", link, err)
			}
		}
		return escapes(name, target)
	}
	return nil
}

// localName returns the clean relative name of an entry. An entry outside of the destination is an error.
func localName(name string) (string, error) {
	clean := path.Clean(strings.TrimSuffix(name, "/"))
	if name == "" || path.IsAbs(name) || !filepath.IsLocal(filepath.FromSlash(clean)) || strings.ContainsRune(name, 0) {
		return "", fleet.Errorf(fleet.CodeInvalid, "the archive's %q lies outside of the destination", name).
			WithHint("make the archive with relative names and without '..'")
	}
	if len(name) > maxNameLength || strings.Count(clean, "/") > maxDepth {
		return "", fleet.Errorf(fleet.CodeInvalid, "the archive has a name of %d bytes in %d folders: that is too long", len(name), strings.Count(clean, "/"))
	}
	return clean, nil
}

// writeFile writes a new file below root, without setuid, setgid and sticky bits.
func writeFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) (err error) {
	perm := mode.Perm()
	if perm == 0 {
		perm = 0o644
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm|0o200)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, content); err != nil {
		if fleet.CodeOf(err) != fleet.CodeInternal {
			return err
		}
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.Chmod(perm)
}

// errTooLarge is the cause of an error for an archive that unpacks to more bytes than its limit.
var errTooLarge = errors.New("the unpacked files are larger than is allowed here")

// bounded reads until its context ends or its byte limit is used up.
type bounded struct {
	ctx  context.Context
	r    io.Reader
	left *int64
}

// Read implements io.Reader.
func (b bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, context.Cause(b.ctx)
	}
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, fleet.Errorf(fleet.CodeInvalid, "%w", errTooLarge).
			WithHint("check that this is the right archive: an artifact may unpack to %d GiB at most, and must leave some of the disk free", DefaultLimits.Bytes>>30)
	}
	return n, err
}

// badArchive returns the error for a file that is not a valid archive.
func badArchive(err error) error {
	if code := fleet.CodeOf(err); code != fleet.CodeInternal || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fleet.Errorf(fleet.CodeInvalid, "it is not the archive that its name promises: %w", err).
		WithHint("write archive = false to take it as it is")
}

func escapes(name, target string) error {
	return fleet.Errorf(fleet.CodeInvalid, "the archive's link %q leads to %q, outside of the destination", name, target)
}
