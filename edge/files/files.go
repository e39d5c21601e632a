// Package files reads the files in an allocation's folder for operators: lists of folders, and files,
// also while they grow. It serves the requests of hubs.
//
// Nothing outside the folder can be read, whatever a task puts into it: paths are opened below an
// os.Root, which follows no link that leads out. The secrets of tasks are not readable, also not
// through a link. Only regular files are read, so that a pipe or a device cannot block a reader.
//
// A reader belongs to one goroutine, and starts none. Nothing is stored.
package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"skerry/fleet"
	"skerry/internal/pace"
	"skerry/internal/sorting"
)

// Values of Request.Kind.
const (
	List   = "ls"     // the entries of a folder, as JSON
	Stat   = "stat"   // one entry, as JSON
	Read   = "readat" // a file's bytes
	Stream = "stream" // a file's bytes, and more as it grows
)

// Bounds of an answer.
const (
	// MaxEntries is the largest number of entries of a listed folder.
	MaxEntries = 10_000
	maxPath    = 4 << 10
	maxLinks   = 64
	pollEvery  = 200 * time.Millisecond
)

// secrets is the name of the folder in each task's folder that cannot be read.
const secrets = "secrets"

// Request says what to read.
type Request struct {
	Dir    string // the allocation's folder
	Kind   string // List, Stat, Read or Stream
	Path   string // below Dir; a leading slash is ignored
	Offset int64  // of Read and Stream: bytes from the start
	Limit  int64  // of Read: how many bytes; 0: all
	// Ended reports that nothing more will be written; a Stream then ends at the end of the file. nil: never.
	Ended func() bool
}

// Open executes a request and returns its answer: JSON for List and Stat, the bytes of the file for Read and
// Stream. The error of a refused request is a *fleet.Error with CodeInvalid, CodeForbidden, CodeNotFound or
// CodeUnsupported.
func Open(ctx context.Context, req Request) (io.ReadCloser, error) {
	if len(req.Path) > maxPath || strings.ContainsRune(req.Path, 0) || req.Offset < 0 || req.Limit < 0 {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read files: invalid path, offset or limit")
	}
	root, err := os.OpenRoot(req.Dir)
	if err != nil {
		return nil, refusalError(req.Path, err)
	}
	defer root.Close()
	name, err := resolveLinks(root, req.Path)
	if err != nil {
		return nil, err
	}
	switch req.Kind {
	case List:
		return listFolder(root, name)
	case Stat:
		info, err := root.Stat(name)
		if err != nil {
			return nil, refusalError(req.Path, err)
		}
		return openJSON(fileInfoOf(root, name, info))
	case Read, Stream:
		return openFile(ctx, root, name, req)
	}
	return nil, fleet.Errorf(fleet.CodeUnsupported, "this edge does not serve %q requests", req.Kind)
}

// resolveLinks returns the path below root that asked leads to when its links are followed. It refuses paths
// that lead to secrets or out of the folder.
func resolveLinks(root *os.Root, asked string) (string, error) {
	rest := strings.Split(path.Clean("/" + asked)[1:], "/")
	done, links := ".", 0
	for len(rest) > 0 {
		next := path.Join(done, rest[0])
		rest = rest[1:]
		if next == ".." || strings.HasPrefix(next, "../") {
			return "", outsideError(asked)
		}
		info, err := root.Lstat(next)
		if err != nil {
			return "", refusalError(asked, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		to, err := root.Readlink(next)
		if err != nil {
			return "", refusalError(asked, err)
		}
		if links++; path.IsAbs(to) || links > maxLinks {
			return "", outsideError(asked)
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	if parts := strings.Split(done, "/"); len(parts) > 1 && parts[1] == secrets {
		return "", fleet.Errorf(fleet.CodeForbidden, "read %s: secrets of tasks cannot be read", asked)
	}
	return done, nil
}

// outsideError returns the error for a path that leads out of the allocation's folder.
func outsideError(asked string) *fleet.Error {
	return fleet.Errorf(fleet.CodeForbidden, "read %s: it leads out of the allocation's folder", asked)
}

// refusalError returns the error for a path that cannot be read, without the machine's own paths.
func refusalError(asked string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fleet.Errorf(fleet.CodeNotFound, "read %s: there is no such file", asked)
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // without the machine's own paths
	}
	return fleet.Errorf(fleet.CodeForbidden, "read %s: %w", asked, err)
}

// listFolder returns the entries of a folder, sorted by name, as JSON.
func listFolder(root *os.Root, name string) (io.ReadCloser, error) {
	if info, err := root.Stat(name); err != nil || !info.IsDir() {
		return nil, fleet.Errorf(fleet.CodeInvalid, "list %s: it is not a folder", name)
	}
	dir, err := root.Open(name)
	if err != nil {
		return nil, refusalError(name, err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(MaxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, refusalError(name, err)
	}
	if len(entries) > MaxEntries {
		return nil, fleet.Errorf(fleet.CodeInvalid, "list %s: it has more than %d entries", name, MaxEntries)
	}
	infos := []fleet.FileInfo{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // removed meanwhile
		}
		infos = append(infos, fileInfoOf(nil, e.Name(), info))
	}
	sorting.Slice(infos, func(x, y fleet.FileInfo) int { return strings.Compare(x.Name, y.Name) })
	return openJSON(infos)
}

// fileInfoOf returns what is shown of an entry. With a root it also reads the beginning of a file to tell the
// type of its content.
func fileInfoOf(root *os.Root, name string, info fs.FileInfo) fleet.FileInfo {
	d := fleet.FileInfo{
		Name: path.Base(name), IsDir: info.IsDir(), Size: info.Size(), FileMode: info.Mode().String(), ModTime: info.ModTime(),
	}
	if root == nil || !info.Mode().IsRegular() {
		return d
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return d
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(f, head)
	d.ContentType = http.DetectContentType(head[:n])
	return d
}

// openJSON encodes an answer as JSON and returns a reader of it.
func openJSON(v any) (io.ReadCloser, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// openFile opens a regular file at the offset of the request. A Stream follows the file as it grows.
func openFile(ctx context.Context, root *os.Root, name string, req Request) (io.ReadCloser, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, refusalError(req.Path, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fleet.Errorf(fleet.CodeInvalid, "read %s: it is not a regular file", req.Path)
	}
	if err == nil {
		_, err = f.Seek(req.Offset, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if req.Kind == Stream {
		r := &follower{file: f, at: req.Offset, ended: req.Ended}
		r.ctx, r.cancel = context.WithCancel(ctx)
		return r, nil
	}
	if req.Limit == 0 {
		return f, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, req.Limit), f}, nil
}

// follower reads a file as it grows, until it is cut short, its writer has ended, or its context has.
type follower struct {
	ctx    context.Context // ends waiting
	cancel context.CancelFunc
	file   *os.File
	at     int64       // bytes read so far, from the start of the file
	ended  func() bool // Request.Ended
}

// Read reads the next bytes. At the end of the file it waits for more, and returns io.EOF if none can come.
func (f *follower) Read(p []byte) (int, error) {
	for {
		ended := f.ended != nil && f.ended()
		n, err := f.file.Read(p)
		f.at += int64(n)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		if info, err := f.file.Stat(); ended || err != nil || info.Size() < f.at {
			return 0, io.EOF
		}
		if !pace.Rest(f.ctx, pollEvery) {
			return 0, context.Cause(f.ctx)
		}
	}
}

// Close closes the file. A Read that waits returns an error.
func (f *follower) Close() error {
	f.cancel()
	return f.file.Close()
}
