// Package dataarchive writes and reads the data folders of an allocation as a tar, so that its replacement on another
// edge gets them. edge/allocs calls it.
//
// An archive holds folders, regular files and symbolic links that stay inside their data folder, in the order of a
// walk. Everything else is left out and counted. Its last entry says that it is complete. Modes, times and, for root,
// numeric owners are kept. Nothing is ever written outside of the given folder. It starts no goroutine.
package dataarchive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skerry/fleet"
)

// Limits bound what Read writes. Sum counts what it wrote, and what the writer left out.
type (
	Limits struct {
		Bytes   int64 // of all files
		Entries int
	}
	Sum struct {
		Bytes   int64
		Files   int
		LeftOut int // special files, files that may not be read, and links that lead outside
	}
)

// Part is a data folder: its name in the archive, and where it lies.
type Part struct{ Name, Dir string }

const (
	endName       = "end"            // of the last entry; no part has this name
	leftOutKey    = "SKERRY.leftout" // record of the last entry
	maxNameLength = 4096
	maxDepth      = 200 // nested folders
)

// Write writes an archive of folders. A file that becomes shorter meanwhile is an error.
func Write(w io.Writer, parts []Part) error {
	a := archiveWriter{tar: tar.NewWriter(w)}
	for _, p := range parts {
		if err := a.writePart(p); err != nil {
			return fmt.Errorf("archive %s: %w", p.Name, err)
		}
	}
	end := &tar.Header{Name: endName, Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{leftOutKey: strconv.Itoa(a.leftOut)}}
	if err := a.tar.WriteHeader(end); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return a.tar.Close()
}

type archiveWriter struct {
	tar     *tar.Writer
	leftOut int
}

func (a *archiveWriter) writePart(p Part) (err error) {
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = a.writeEntry(root, p.Name, name)
		}
		if errors.Is(err, fs.ErrPermission) && name != "." {
			a.leftOut++ // a task has taken the agent's own user the right to read it
			return nil
		}
		return err
	})
}

// writeEntry writes one file, folder or link of a part, or counts that it is left out.
func (a *archiveWriter) writeEntry(root *os.Root, part, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	target := ""
	switch info.Mode().Type() {
	case fs.ModeDir:
	case fs.ModeSymlink:
		if target, err = root.Readlink(name); err != nil {
			return err
		}
		if !staysInside(root, name, target) {
			a.leftOut++
			return nil
		}
	case 0:
		return a.writeFile(root, part, name)
	default:
		a.leftOut++
		return nil
	}
	return a.writeHeader(info, target, path.Join(part, name))
}

func (a *archiveWriter) writeHeader(info fs.FileInfo, target, name string) error {
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname, h.Format = name, "", "", tar.FormatPAX
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	return a.tar.WriteHeader(h)
}

// writeFile writes a regular file. Another kind of file that has taken its place is left out; of a link, root follows only
// one that stays inside.
func (a *archiveWriter) writeFile(root *os.Root, part, name string) (err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		a.leftOut++
		return nil
	}
	if err := a.writeHeader(info, "", path.Join(part, name)); err != nil {
		return err
	}
	_, err = io.CopyN(a.tar, f, info.Size())
	return err
}

// staysInside reports whether a link leads, by its text and as the system follows it, to something below root.
func staysInside(root *os.Root, name, target string) bool {
	if target == "" || len(target) > maxNameLength || path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(name), target)) {
		return false
	}
	_, err := root.Stat(name)
	return err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR)
}

// Read writes the folders of an archive below dir, which has to be empty. wanted names them; others are passed over. An
// archive that may not be taken, whatever is tried, is a fleet.CodeInvalid.
func Read(r io.Reader, dir string, wanted []string, limits Limits) (sum Sum, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Sum{}, err
	}
	t := treeReader{tar: tar.NewReader(r), root: root, wanted: wanted, left: limits, limits: limits, keepOwner: os.Geteuid() == 0}
	defer func() { err = errors.Join(err, root.Close()) }()
	for {
		h, err := t.tar.Next()
		switch {
		case errors.Is(err, io.EOF):
			return Sum{}, fmt.Errorf("read the archive: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return Sum{}, fmt.Errorf("read the archive: %w", err)
		case h.Name == endName:
			return t.finishTree(h)
		}
		if err := t.readEntry(h); err != nil {
			return Sum{}, err
		}
	}
}

type treeReader struct {
	tar       *tar.Reader
	root      *os.Root
	wanted    []string
	open      []*tar.Header // the folder that is being filled, and those above it up to its part
	left      Limits
	limits    Limits
	sum       Sum
	keepOwner bool
}

func (t *treeReader) readEntry(h *tar.Header) error {
	name := path.Clean(h.Name)
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) || len(name) > maxNameLength || strings.Count(name, "/") > maxDepth {
		return fleet.Errorf(fleet.CodeInvalid, "the archive has the name %.100q, which leads outside or is too long", h.Name)
	}
	if t.left.Entries--; t.left.Entries < 0 {
		return fleet.Errorf(fleet.CodeInvalid, "there are more than %d files", t.limits.Entries).WithHint("keep data that has so many files in a volume")
	}
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) >= 1<<32-1 || int64(h.Gid) >= 1<<32-1 {
		return fleet.Errorf(fleet.CodeInvalid, "the archive's %.100q has no possible owner", name)
	}
	part := t.partOf(name)
	if part == "" {
		return nil
	}
	h.Name = name
	if err := t.closeFolders(name); err != nil {
		return err
	}
	if name == part && h.Typeflag == tar.TypeDir {
		if err := t.root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
	} else if len(t.open) == 0 || t.open[len(t.open)-1].Name != path.Dir(name) {
		return fleet.Errorf(fleet.CodeInvalid, "the archive has %.100q before its folder", name)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		t.open = append(t.open, h)
		return t.namedError(name, t.root.Mkdir(name, 0o700))
	case tar.TypeReg:
		return t.namedError(name, t.writeFile(h))
	case tar.TypeSymlink:
		return t.writeLink(h, part)
	}
	return fleet.Errorf(fleet.CodeInvalid, "the archive's %.100q is a special file", name)
}

// namedError says which file an error is about. A name that is there already is the archive's fault.
func (t *treeReader) namedError(name string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fleet.Errorf(fleet.CodeInvalid, "the archive has %.100q twice", name)
	}
	if err != nil {
		return fmt.Errorf("write %.100q: %w", name, err)
	}
	return nil
}

// partOf returns the wanted folder that a name belongs to; "": none.
func (t *treeReader) partOf(name string) string {
	for _, part := range t.wanted {
		if name == part || strings.HasPrefix(name, part+"/") {
			return part
		}
	}
	return ""
}

// closeFolders gives the folders that are complete, because name lies outside of them, their modes. ".": all.
func (t *treeReader) closeFolders(name string) error {
	for len(t.open) > 0 {
		last := t.open[len(t.open)-1]
		if strings.HasPrefix(name, last.Name+"/") {
			return nil
		}
		t.open = t.open[:len(t.open)-1]
		if err := t.namedError(last.Name, t.setAttributes(last)); err != nil {
			return err
		}
	}
	return nil
}

// setAttributes sets the owner, the mode and the time of a file or a folder.
func (t *treeReader) setAttributes(h *tar.Header) error {
	mode := h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if t.keepOwner {
		if err := t.root.Lchown(h.Name, h.Uid, h.Gid); err != nil {
			return err
		}
	} else {
		mode &= fs.ModePerm
	}
	if err := t.root.Chmod(h.Name, mode); err != nil {
		return err
	}
	return t.root.Chtimes(h.Name, time.Time{}, h.ModTime)
}

func (t *treeReader) writeFile(h *tar.Header) error {
	if t.left.Bytes -= h.Size; t.left.Bytes < 0 {
		return fleet.Errorf(fleet.CodeInvalid, "the data is larger than the %d MB of the group's ephemeral_disk", t.limits.Bytes>>20).
			WithHint("write a larger size in ephemeral_disk, or keep the data in a volume")
	}
	f, err := t.root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, t.tar)
	t.sum.Bytes, t.sum.Files = t.sum.Bytes+n, t.sum.Files+1
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return t.setAttributes(h)
}

// writeLink writes a link, whose text must lead to something in its part. finishTree follows it.
func (t *treeReader) writeLink(h *tar.Header, part string) error {
	if h.Linkname == "" || path.IsAbs(h.Linkname) || !filepath.IsLocal(path.Join(path.Dir(h.Name[len(part)+1:]), h.Linkname)) {
		return escapes(h.Name)
	}
	if err := t.root.Symlink(h.Linkname, h.Name); err != nil {
		return t.namedError(h.Name, err)
	}
	if t.keepOwner {
		return t.namedError(h.Name, t.root.Lchown(h.Name, h.Uid, h.Gid))
	}
	return nil
}

func escapes(name string) error {
	return fleet.Errorf(fleet.CodeInvalid, "the archive's link %.100q leads outside of its folder", name)
}

// finishTree completes the folders, and follows all links: a chain of them must not lead outside.
func (t *treeReader) finishTree(end *tar.Header) (Sum, error) {
	if err := t.closeFolders("."); err != nil {
		return Sum{}, err
	}
	t.sum.LeftOut, _ = strconv.Atoi(end.PAXRecords[leftOutKey])
	t.sum.LeftOut = max(0, t.sum.LeftOut)
	for _, part := range t.wanted {
		if err := t.checkLinks(part); err != nil {
			return Sum{}, err
		}
	}
	return t.sum, nil
}

func (t *treeReader) checkLinks(part string) (err error) {
	root, err := t.root.OpenRoot(part)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return fs.SkipDir // its owner alone may follow what is in it
		}
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		target, err := root.Readlink(name)
		if err == nil && !staysInside(root, name, target) {
			return escapes(path.Join(part, name))
		}
		return err
	})
}
