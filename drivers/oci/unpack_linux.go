package oci

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry/fleet"
)

const (
	maxNameLength = 4096
	maxDepth      = 200 // nested folders
	// spareDisk is the space in bytes that an image must leave free on the disk.
	spareDisk = 64 << 20

	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// layerWriter unpacks the layers of an image, the lowest first, into a folder. It writes nothing outside of it.
type layerWriter struct {
	ctx    context.Context
	layout *os.Root
	root   *os.Root
	bytes  int64 // that may still be written
	files  int   // that may still be written
}

// unpackLayer unpacks a layer. It reads the layer twice: what it removes from the layers below comes first, wherever
// in the archive it stands. The digest is verified both times.
func (w *layerWriter) unpackLayer(l ocispec.Descriptor) error {
	bytes, files := w.bytes, w.files
	err := w.readLayer(l, w.removeHidden)
	if err == nil {
		w.bytes, w.files = bytes, files
		err = w.readLayer(l, w.writeEntry)
	}
	if err != nil {
		return fmt.Errorf("unpack layer %s: %w", l.Digest, err)
	}
	return nil
}

// readLayer calls do with each entry of a layer, and then verifies the layer's digest.
func (w *layerWriter) readLayer(l ocispec.Descriptor, do func(name string, h *tar.Header, content io.Reader) error) (err error) {
	name, err := blobName(l.Digest)
	if err != nil {
		return err
	}
	f, err := openFile(w.layout, name)
	if err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "it cannot be read: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	raw := io.TeeReader(io.LimitReader(f, l.Size+1), sum)
	content := raw
	if gzipped, _ := isCompressed(l.MediaType); gzipped {
		if content, err = gzip.NewReader(raw); err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "it is malformed: %w", err)
		}
	}
	if err := w.readEntries(content, do); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, raw); err != nil { // what follows the archive
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != l.Digest.Encoded() {
		return errWrongBlob(l.Digest)
	}
	return nil
}

// readEntries calls do with each entry of an archive.
func (w *layerWriter) readEntries(content io.Reader, do func(name string, h *tar.Header, content io.Reader) error) error {
	for archive := tar.NewReader(bounded{w, content}); ; {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, new(*fleet.Error)), err != nil && w.ctx.Err() != nil:
			return err
		case err != nil:
			return fleet.Errorf(fleet.CodeInvalid, "it is no archive: %w", err)
		case h.Typeflag == tar.TypeXGlobalHeader:
			continue
		}
		if w.files--; w.files < 0 {
			return fleet.Errorf(fleet.CodeInvalid, "the image has more than %d files", maxImageFiles)
		}
		name, err := localName(h.Name)
		if err == nil && name != "." {
			err = do(name, h, archive)
		}
		if err != nil {
			return err
		}
	}
}

// bounded reads until the context of a layerWriter ends or its bytes are used up.
type bounded struct {
	w *layerWriter
	r io.Reader
}

// Read implements io.Reader.
func (b bounded) Read(p []byte) (int, error) {
	if err := b.w.ctx.Err(); err != nil {
		return 0, context.Cause(b.w.ctx)
	}
	n, err := b.r.Read(p)
	if b.w.bytes -= int64(n); b.w.bytes < 0 {
		return 0, fleet.Errorf(fleet.CodeInvalid, "the unpacked image is larger than is allowed here").
			WithHint("an image may have %d GiB at most, and must leave some of the disk free", maxImageBytes>>30)
	}
	return n, err
}

// localName returns the clean relative name of an entry. An entry outside of the root is an error.
func localName(name string) (string, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if name == "" || !filepath.IsLocal(filepath.FromSlash(clean)) || strings.ContainsRune(name, 0) || len(name) > maxNameLength || strings.Count(clean, "/") > maxDepth {
		return "", fleet.Errorf(fleet.CodeInvalid, "its entry %.200q lies outside of the image, or has too long a name", name)
	}
	return clean, nil
}

// removeHidden removes what an entry hides of the layers below.
func (w *layerWriter) removeHidden(name string, _ *tar.Header, _ io.Reader) error {
	folder, base := path.Split(name)
	folder = path.Clean(folder)
	switch {
	case base == whiteoutOpaque:
		list, err := fs.ReadDir(w.root.FS(), folder)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, f := range list {
			err = errors.Join(err, w.root.RemoveAll(path.Join(folder, f.Name())))
		}
		return err
	case strings.HasPrefix(base, whiteoutPrefix):
		hidden := strings.TrimPrefix(base, whiteoutPrefix)
		if hidden == "" || hidden == "." || hidden == ".." {
			return fleet.Errorf(fleet.CodeInvalid, "its entry %.200q hides nothing", name)
		}
		return w.root.RemoveAll(path.Join(folder, hidden))
	}
	return nil
}

// writeEntry writes a file, a folder or a link. It replaces what a lower layer or an earlier entry has there.
func (w *layerWriter) writeEntry(name string, h *tar.Header, content io.Reader) error {
	if strings.HasPrefix(path.Base(name), whiteoutPrefix) {
		return nil
	}
	if err := w.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make the folder of %s: %w", name, err)
	}
	info, err := w.root.Lstat(name)
	switch {
	case err == nil && (!info.IsDir() || h.Typeflag != tar.TypeDir):
		err = w.root.RemoveAll(name)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	perm := h.FileInfo().Mode().Perm() | h.FileInfo().Mode()&fs.ModeSticky // no setuid: tasks get no new privileges
	switch h.Typeflag {
	case tar.TypeDir:
		if err = w.root.Mkdir(name, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	case tar.TypeReg:
		err = w.writeFile(name, content)
	case tar.TypeSymlink:
		err = w.root.Symlink(h.Linkname, name) // only the task follows it, in its own root
	case tar.TypeLink:
		var target string
		if target, err = localName(h.Linkname); err == nil {
			err = w.root.Link(target, name)
		}
		if err == nil {
			return nil
		}
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		if strings.HasPrefix(name, "dev/") { // the task has a /dev of its own
			return nil
		}
		fallthrough
	default:
		return fleet.Errorf(fleet.CodeInvalid, "its entry %.200q is a device, a pipe or another special file", name)
	}
	if err == nil {
		err = w.root.Lchown(name, h.Uid, h.Gid)
	}
	if err == nil && h.Typeflag != tar.TypeSymlink {
		err = w.root.Chmod(name, perm)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// writeFile writes a new file.
func (w *layerWriter) writeFile(name string, content io.Reader) (err error) {
	f, err := w.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, content)
	return err
}
