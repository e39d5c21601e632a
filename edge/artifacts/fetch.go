package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strings"
	"time"

	"skerry/edge/store"
	"skerry/fleet"
	"skerry/internal/durable"
	"skerry/internal/redact"
)

// DefaultLimits bound the files that one artifact unpacks to.
var DefaultLimits = Limits{Bytes: 32 << 30, Files: 1 << 16}

// fetchTimeout bounds a download, as Nomad's http_read_timeout, git_timeout and s3_timeout do.
const fetchTimeout = 30 * time.Minute

// spareDisk is the space in bytes that an artifact must leave free on the disk.
const spareDisk = 64 << 20

// treeName is the name under which the store keeps a folder, as a tar.
const treeName = ".tree.tar"

// Config is the configuration of a Fetcher.
type Config struct {
	Store *store.Store
	// Hidden is the edge's data directory, which holds its keys. No artifact may come from it.
	Hidden string
	Limits Limits // the zero value means DefaultLimits
	// Free returns the free and the total space of the disk that holds a path. The default asks the system.
	Free func(path string) (free, total int64, err error)
	Now  func() time.Time
	Log  *slog.Logger
}

// Fetcher fetches artifacts. It is safe for concurrent use.
type Fetcher struct {
	cfg Config
}

// NewFetcher makes a Fetcher. It does no I/O.
func NewFetcher(cfg Config) *Fetcher {
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits
	}
	if cfg.Free == nil {
		cfg.Free = durable.FreeSpace
	}
	return &Fetcher{cfg}
}

// Request is an artifact block with ${…} replaced.
type Request struct {
	Source   Source
	Headers  map[string]string
	Mode     string // fleet.ArtifactAny …
	Insecure bool   // certificates of servers are not checked
	// Owner pins the contents that only a manifest names; "": nobody.
	Owner fleet.AllocID
	// Root is a folder that nothing leaves, Dest the place below it.
	Root string
	Dest string
}

// redactError returns an error of the request without its credentials, and without the queries of addresses: they may be signed.
func (r *Request) redactError(err error) error {
	s := &r.Source
	hidden := []string{s.secretKey, s.sessionToken}
	if user := s.url.User; user != nil {
		password, has := user.Password()
		if !has && s.url.Scheme != "ssh" { // a token in place of the user
			password = user.Username()
		}
		hidden = append(hidden, password)
	}
	for _, value := range r.Headers {
		hidden = append(hidden, value)
	}
	return redact.NewValues(hidden...).Error(redact.Error(err))
}

// Result is the outcome of a request.
type Result struct {
	Stored bool // the content was in the store before the request
	Since  time.Time
	Bytes  int64
}

// Fetch writes an artifact to its destination. Trying again does not help after an error with fleet.CodeInvalid,
// CodeUnsupported or CodeForbidden: the request or the content is wrong.
func (f *Fetcher) Fetch(ctx context.Context, r Request) (Result, error) {
	ctx, cancel := boundFetch(ctx)
	defer cancel()
	file, e, stored, err := f.openContent(ctx, &r)
	if err != nil {
		return Result{}, fmt.Errorf("fetch artifact %s: %w", r.Source.String(), r.redactError(err))
	}
	err = f.placeContent(ctx, &r, file, e)
	if err = errors.Join(err, file.Close()); err != nil {
		return Result{}, fmt.Errorf("fetch artifact %s: %w", r.Source.String(), r.redactError(err))
	}
	return Result{Stored: stored, Since: e.Stored, Bytes: e.Size}, nil
}

// FetchToStore fetches the content of an artifact into the store, unless it is there. It does nothing for a file of
// this edge, which Fetch reads from its place.
func (f *Fetcher) FetchToStore(ctx context.Context, r Request) error {
	image := r.Source.from == fromOCI
	if r.Source.from == fromFile && f.hasLocal(&r.Source) || !image && f.cfg.Store.Has(r.Source.Key(r.Headers)) {
		return nil
	}
	ctx, cancel := boundFetch(ctx)
	defer cancel()
	file, e, _, err := f.openContent(ctx, &r)
	if err == nil && image && e.Name == manifestName {
		_, err = f.fetchLayers(ctx, &r, file)
	}
	if file != nil {
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("fetch artifact %s: %w", r.Source.String(), r.redactError(err))
	}
	return nil
}

// boundFetch returns a context that ends after fetchTimeout.
func boundFetch(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, fetchTimeout,
		fleet.Errorf(fleet.CodeTimeout, "the artifact did not arrive within %v", fetchTimeout))
}

// openContent opens the content in the store, after fetching it into the store if it is missing there. A file of this
// edge without a checksum is read again at each request, as long as it exists.
func (f *Fetcher) openContent(ctx context.Context, r *Request) (*os.File, store.Entry, bool, error) {
	key := r.Source.Key(r.Headers)
	fresh := r.Source.from == fromFile && r.Source.checksum == "" && f.hasLocal(&r.Source)
	var damage error
	if !fresh {
		file, e, err := f.cfg.Store.Open(ctx, key)
		if err == nil || ctx.Err() != nil {
			return file, e, true, err
		}
		damage = err
	}
	d, err := f.cfg.Store.Begin(ctx, key)
	if err != nil {
		return nil, store.Entry{}, false, err
	}
	if !fresh && f.cfg.Store.Has(key) { // another task has just fetched it
		if err := d.Suspend(); err != nil {
			return nil, store.Entry{}, false, err
		}
		file, e, err := f.cfg.Store.Open(ctx, key)
		if err == nil {
			return file, e, true, nil
		}
		if d, err = f.cfg.Store.Begin(ctx, key); err != nil {
			return nil, store.Entry{}, false, err
		}
	}
	name, err := f.downloadContent(ctx, r, d)
	if err != nil {
		if errors.Is(damage, store.ErrDamaged) {
			err = fmt.Errorf("%w, and %w", damage, err)
		}
		return nil, store.Entry{}, false, errors.Join(err, d.Suspend())
	}
	if _, err := d.Commit(name); err != nil {
		return nil, store.Entry{}, false, err
	}
	file, e, err := f.cfg.Store.Open(ctx, key)
	return file, e, false, err
}

// downloadContent writes the content of a source into d and returns the name of its file.
func (f *Fetcher) downloadContent(ctx context.Context, r *Request, d *store.Download) (string, error) {
	switch r.Source.from {
	case fromFile:
		return f.copyLocal(ctx, &r.Source, d)
	case fromGit:
		return treeName, f.cloneGit(ctx, r, d)
	case fromOCI:
		return manifestName, f.fetchManifest(ctx, r, d)
	}
	return r.Source.fileName(), f.getHTTP(ctx, r, d)
}

// placeContent unpacks or copies a content to its destination.
func (f *Fetcher) placeContent(ctx context.Context, r *Request, content *os.File, e store.Entry) (err error) {
	root, err := os.OpenRoot(r.Root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	limits, byDisk := f.limitsFor(r.Root)
	if byDisk {
		defer func() { err = lackOfSpace(err) }()
	}
	format := r.Source.archive
	switch {
	case e.Name == treeName:
		format = "tar"
	case r.Source.from == fromOCI && e.Name == manifestName:
		return f.placeLayers(ctx, r, root, content, limits)
	case r.Source.from == fromGit, r.Source.from == fromOCI: // loaded by hand
		if format, err = archiveFormat("", e.Name); err != nil {
			return err
		}
	}
	dest := path.Clean(r.Dest)
	switch {
	case isTree(format):
		return f.placeTree(ctx, r, root, content, format, limits)
	case r.Source.subdir != "":
		return fleet.Errorf(fleet.CodeInvalid, "it is one file, which has no %q", r.Source.subdir).WithHint("leave out what follows //")
	case r.Mode == fleet.ArtifactDir:
		return fleet.Errorf(fleet.CodeInvalid, "it is one file, and mode = \"dir\" takes a folder").
			WithHint("offer the folder as an archive, or write mode = \"file\"")
	case r.Mode == fleet.ArtifactAny:
		name := r.Source.fileName()
		if format != "" && r.Source.filename == "" {
			name = strings.TrimSuffix(name, "."+format)
		}
		dest = path.Join(dest, name)
	}
	reader, closeReader, err := decompress(format, content)
	if format == "" {
		reader, closeReader, err = content, func() {}, nil
	}
	if err != nil {
		return badArchive(err)
	}
	defer closeReader()
	if err := makeParent(root, dest); err != nil {
		return err
	}
	err = writeFile(root, dest, 0o644, bounded{ctx, reader, &limits.Bytes})
	if err != nil && format != "" {
		return badArchive(err)
	}
	return err
}

// makeParent makes the folder of a file that will be written, and removes an older file of that name.
func makeParent(root *os.Root, name string) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make the folder of %s: %w", name, err)
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fleet.Errorf(fleet.CodeInvalid, "the destination %s cannot be replaced: %w", name, err).
			WithHint("a folder is there: with mode = \"file\" the destination is the file itself")
	}
	return nil
}

// placeTree unpacks an archive into the destination. With mode "file" it writes the archive's only file there.
func (f *Fetcher) placeTree(ctx context.Context, r *Request, root *os.Root, content *os.File, format string, limits Limits) (err error) {
	t, err := newTreeWriter(ctx, r, root, limits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.root.Close()) }()
	return t.unpackTree(content, format)
}

// newTreeWriter makes what writes files below the destination. Its root has to be closed.
func newTreeWriter(ctx context.Context, r *Request, root *os.Root, limits Limits) (t *treeWriter, err error) {
	t = &treeWriter{ctx: ctx, left: limits, limits: limits}
	if r.Source.subdir != "" {
		t.under = strings.Split(path.Clean(r.Source.subdir), "/")
	}
	folder := path.Clean(r.Dest)
	if r.Mode == fleet.ArtifactFile {
		t.single, folder = path.Base(folder), path.Dir(folder)
	}
	if err := root.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the destination %s: %w", folder, err)
	}
	if t.root, err = root.OpenRoot(folder); err != nil {
		return nil, fmt.Errorf("open the destination %s: %w", folder, err)
	}
	return t, nil
}

// limitsFor returns the bounds of an unpacked artifact in a folder. byDisk says that the free space of the disk is the
// bound; such a failure is worth a retry.
func (f *Fetcher) limitsFor(folder string) (limits Limits, byDisk bool) {
	limits = f.cfg.Limits
	if free, _, err := f.cfg.Free(folder); err == nil && free-spareDisk < limits.Bytes {
		limits.Bytes, byDisk = max(free-spareDisk, 0), true
	}
	return limits, byDisk
}

// lackOfSpace returns the error for a content that is larger than the free space. It returns other errors as they are.
func lackOfSpace(err error) error {
	if !errors.Is(err, errTooLarge) {
		return err
	}
	return fleet.Errorf(fleet.CodeUnavailable, "the disk has too little free space for its files").
		WithHint("free some space: an artifact leaves %d MiB of the disk free", spareDisk>>20)
}

// copyAll copies a reader into a download until ctx ends.
func copyAll(ctx context.Context, d *store.Download, r io.Reader) error {
	left := int64(1) << 62
	_, err := io.Copy(d, bounded{ctx, r, &left})
	return err
}
