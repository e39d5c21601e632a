package artifacts

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"skerry/edge/store"
	"skerry/fleet"
	"skerry/internal/redact"
)

const (
	// manifestName is the name of a stored manifest, whose layers are contents of their own.
	manifestName = ".oci-manifest.json"
	maxManifest  = 4 << 20 // as the distribution specification recommends
	maxLayers    = 128
	// unpackAnnotation marks a layer that is a folder, as the program oras writes it.
	unpackAnnotation = "io.deis.oras.content.unpack"
	dockerIndex      = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// takeOCIOptions reads the name of an image, and takes what is for its registry out of the query.
func (s *Source) takeOCIOptions(take func(string) string, u *url.URL, archive string) (err error) {
	if s.image, err = registry.ParseReference(u.Host + u.Path); err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "artifact source %q: %v", redact.Address(u.String()), err).WithHint("write oci://HOST/REPOSITORY:TAG or oci://HOST/REPOSITORY@sha256:DIGEST")
	}
	if s.image.Reference == "" {
		s.image.Reference = "latest"
	}
	switch {
	case s.checksum != "":
		return fleet.Errorf(fleet.CodeInvalid, "an artifact from oci has no checksum: its digest is one").WithHint("write oci://HOST/REPOSITORY@sha256:DIGEST")
	case s.filename != "" || archive != "":
		return fleet.Errorf(fleet.CodeInvalid, "an artifact from oci has no filename and no archive: its files keep their names").
			WithHint("write mode = \"file\" to give the only file the name of the destination")
	}
	plain := take("plain_http")
	if plain != "" && plain != "true" && plain != "false" {
		return fleet.Errorf(fleet.CodeInvalid, "plain_http %q of an artifact is neither true nor false", plain)
	}
	host := s.image.Registry
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	s.plainHTTP = plain == "true" || host == "localhost" || net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
	return nil
}

// newRepository makes the client of a source's repository, and a function that closes its connections.
func (f *Fetcher) newRepository(r *Request) (*remote.Repository, func()) {
	transport := newTransport(r.Insecure)
	c := &auth.Client{
		Client: &http.Client{Transport: transport, CheckRedirect: checkRedirect},
		Header: http.Header{"User-Agent": {"skerry"}}, Cache: auth.NewCache(),
	}
	for k, v := range r.Headers {
		c.Header.Set(k, v)
	}
	if user := r.Source.url.User; user != nil {
		password, _ := user.Password()
		c.Credential = auth.StaticCredential(r.Source.image.Host(), auth.Credential{Username: user.Username(), Password: password})
	}
	return &remote.Repository{Client: c, Reference: r.Source.image, PlainHTTP: r.Source.plainHTTP}, transport.CloseIdleConnections
}

// fetchManifest writes the manifest of an image into a download; of an index, the one for this machine.
func (f *Fetcher) fetchManifest(ctx context.Context, r *Request, d *store.Download) error {
	if err := d.Restart(""); err != nil {
		return err
	}
	repo, disconnect := f.newRepository(r)
	defer disconnect()
	kind, raw, err := readManifest(ctx, repo, r.Source.image.Reference)
	if err == nil && (kind == ocispec.MediaTypeImageIndex || kind == dockerIndex) {
		var chosen digest.Digest
		if chosen, err = choosePlatform(raw); err == nil {
			_, raw, err = readManifest(ctx, repo, chosen.String())
		}
	}
	if err == nil {
		_, err = parseManifest(raw)
	}
	if err != nil {
		return err
	}
	_, err = d.Write(raw)
	return err
}

// readManifest reads a manifest or an index, which has the digest that it says or that reference is.
func readManifest(ctx context.Context, repo *remote.Repository, reference string) (kind string, raw []byte, err error) {
	desc, body, err := repo.Manifests().FetchReference(ctx, reference)
	if err != nil {
		return "", nil, fmt.Errorf("read its manifest: %w", err)
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	if desc.Size > maxManifest {
		return "", nil, fleet.Errorf(fleet.CodeInvalid, "its manifest has %d bytes, at most %d are read", desc.Size, maxManifest)
	}
	if raw, err = content.ReadAll(body, desc); err != nil {
		return "", nil, fmt.Errorf("read its manifest: %w", err)
	}
	return desc.MediaType, raw, nil
}

// choosePlatform returns the digest of the manifest for this machine in an index, or of the only one.
func choosePlatform(raw []byte) (digest.Digest, error) {
	var index ocispec.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		return "", fleet.Errorf(fleet.CodeInvalid, "its index is malformed: %w", err)
	}
	var offered []string
	for _, m := range index.Manifests {
		p := m.Platform
		if p == nil {
			p = &ocispec.Platform{}
		}
		if len(index.Manifests) == 1 || p.OS == runtime.GOOS && p.Architecture == runtime.GOARCH {
			if err := m.Digest.Validate(); err != nil {
				return "", fleet.Errorf(fleet.CodeInvalid, "its index is malformed: %w", err)
			}
			return m.Digest, nil
		}
		if len(offered) < maxLayers {
			offered = append(offered, path.Join(p.OS, p.Architecture))
		}
	}
	return "", fleet.Errorf(fleet.CodeInvalid, "it has nothing for %s/%s, only for %s", runtime.GOOS, runtime.GOARCH, strings.Join(offered, ", "))
}

// parseManifest reads a manifest and checks what it says of its layers.
func parseManifest(raw []byte) (*ocispec.Manifest, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "its manifest is malformed: %w", err)
	}
	if len(m.Layers) == 0 || len(m.Layers) > maxLayers {
		return nil, fleet.Errorf(fleet.CodeInvalid, "its manifest has %d layers, and from 1 to %d are taken", len(m.Layers), maxLayers)
	}
	for i, l := range m.Layers {
		if _, err := store.ParseChecksum(l.Digest.String()); err != nil || l.Digest.Validate() != nil || l.Size < 0 {
			return nil, fleet.Errorf(fleet.CodeInvalid, "layer %d of its manifest has the digest %.80q and %d bytes", i+1, l.Digest, l.Size)
		}
		if layerTitle(l) == "" && layerFormat(l) == "" && l.MediaType != ocispec.MediaTypeEmptyJSON {
			return nil, fleet.Errorf(fleet.CodeInvalid, "layer %d of its manifest is of type %.80q, and has no title", i+1, l.MediaType).
				WithHint("layers are archives (tar, tar+gzip, tar+zstd), or files with the annotation %s", ocispec.AnnotationTitle)
		}
	}
	return &m, nil
}

// layerTitle returns the name of the file that a layer is; "": it is none.
func layerTitle(l ocispec.Descriptor) string {
	if l.Annotations[unpackAnnotation] == "true" && layerFormat(l) != "" {
		return ""
	}
	return l.Annotations[ocispec.AnnotationTitle]
}

// layerFormat returns the format of the archive that a layer is; "": it is none.
func layerFormat(l ocispec.Descriptor) string {
	for end, format := range map[string]string{"tar": "tar", "tar+gzip": "tar.gz", "tar.gzip": "tar.gz", "tar+zstd": "tar.zst"} {
		if strings.HasSuffix(l.MediaType, "."+end) || strings.HasSuffix(l.MediaType, "/"+end) {
			return format
		}
	}
	return ""
}

// layerKey returns what the store knows a layer by. Another content with the same digest will do.
func (s *Source) layerKey(l ocispec.Descriptor) store.Key {
	return store.Key{Source: fmt.Sprintf("oci://%s/%s@%s", s.image.Registry, s.image.Repository, l.Digest), Checksum: l.Digest.String()}
}

// fetchLayers brings the layers of a stored manifest into the store, those that are missing, and returns them.
func (f *Fetcher) fetchLayers(ctx context.Context, r *Request, manifest io.Reader) ([]ocispec.Descriptor, error) {
	raw, err := io.ReadAll(io.LimitReader(manifest, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("read its manifest: %w", err)
	}
	m, err := parseManifest(raw)
	if err != nil {
		return nil, err
	}
	keys := make([]store.Key, len(m.Layers))
	for i, l := range m.Layers {
		keys[i] = r.Source.layerKey(l)
	}
	if r.Owner != "" {
		if err := f.cfg.Store.Pin(r.Owner, keys...); err != nil {
			return nil, err
		}
	}
	repo, disconnect := f.newRepository(r)
	defer disconnect()
	for i, l := range m.Layers {
		if f.cfg.Store.Has(keys[i]) {
			continue
		}
		if err := f.fetchLayer(ctx, r, repo, l); err != nil {
			return nil, fmt.Errorf("fetch layer %s: %w", l.Digest, err)
		}
	}
	return m.Layers, nil
}

// fetchLayer brings a layer into the store.
func (f *Fetcher) fetchLayer(ctx context.Context, r *Request, repo *remote.Repository, l ocispec.Descriptor) error {
	if l.Size > f.cfg.Store.MaxBytes() {
		return f.errTooLargeToStore(l.Size)
	}
	key := r.Source.layerKey(l)
	d, err := f.cfg.Store.Begin(ctx, key)
	if err != nil {
		return err
	}
	if f.cfg.Store.Has(key) { // another task was faster
		return d.Suspend()
	}
	for {
		before := d.Size()
		if err = copyLayer(ctx, repo, l, d); err == nil {
			_, err = d.Commit("")
			return err
		}
		if ctx.Err() != nil || d.Size() <= before || isFinal(err) {
			return errors.Join(err, d.Suspend())
		}
		f.cfg.Log.Info("download of a layer was cut: going on", "source", r.Source.String(), "bytes", d.Size(), "error", r.redactError(err))
	}
}

// copyLayer downloads what is missing of a layer.
func copyLayer(ctx context.Context, repo *remote.Repository, l ocispec.Descriptor, d *store.Download) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, err := repo.Blobs().Fetch(ctx, l)
	if err != nil {
		return fmt.Errorf("it is not in reach: %w", err)
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	seeker, seeks := body.(io.Seeker)
	if !seeks || d.Validator() != l.Digest.String() || d.Size() == 0 {
		err = d.Restart(l.Digest.String())
	} else {
		_, err = seeker.Seek(d.Size(), io.SeekStart)
	}
	if err != nil {
		return err
	}
	return copyBody(ctx, cancel, d, io.LimitReader(body, l.Size-d.Size()+1))
}

// placeLayers unpacks the layers of an image to the destination, the last one first: its files hide those of the others.
func (f *Fetcher) placeLayers(ctx context.Context, r *Request, root *os.Root, manifest io.Reader, limits Limits) (err error) {
	layers, err := f.fetchLayers(ctx, r, manifest)
	if err != nil {
		return err
	}
	t, err := newTreeWriter(ctx, r, root, limits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.root.Close()) }()
	t.mask = &layerMask{hidden: map[string]bool{}, opaque: map[string]bool{}}
	for i := len(layers) - 1; i >= 0; i-- {
		if layers[i].MediaType == ocispec.MediaTypeEmptyJSON {
			continue
		}
		file, err := f.openLayer(ctx, r, layers[i])
		if err != nil {
			return err
		}
		err = t.unpackLayer(layers[i], file)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("unpack layer %s: %w", layers[i].Digest, err)
		}
		t.mask.endLayer()
	}
	return t.finishTree()
}

// openLayer opens a layer in the store. A damaged one is fetched again.
func (f *Fetcher) openLayer(ctx context.Context, r *Request, l ocispec.Descriptor) (*os.File, error) {
	key := r.Source.layerKey(l)
	file, _, err := f.cfg.Store.Open(ctx, key)
	if !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrMissing) {
		return file, err
	}
	repo, disconnect := f.newRepository(r)
	defer disconnect()
	if again := f.fetchLayer(ctx, r, repo, l); again != nil {
		return nil, fmt.Errorf("%w, and %w", err, again)
	}
	file, _, err = f.cfg.Store.Open(ctx, key)
	return file, err
}

// unpackLayer writes the files of a layer.
func (t *treeWriter) unpackLayer(l ocispec.Descriptor, file *os.File) error {
	title := layerTitle(l)
	if title == "" {
		return t.unpackTar(file, layerFormat(l))
	}
	return t.writeEntry(entry{name: title, kind: tar.TypeReg, mode: fs.FileMode(0o644), content: bounded{t.ctx, file, &t.left.Bytes}})
}

const (
	whiteout = ".wh." // begins the name of a file that is removed
	opaque   = ".wh..wh..opq"
	// maxMask bounds the bytes of the names that a layerMask remembers.
	maxMask = 16 << 20
)

// layerMask says which files of lower layers are not to be written.
type layerMask struct {
	hidden map[string]bool // names with everything below them
	opaque map[string]bool // folders of which the content is hidden
	bytes  int
	// of the layer that is being unpacked: they hide what is in lower layers
	nextHidden, nextOpaque []string
}

// hidesEntry reports whether an entry is not to be written: a file of an upper layer hides it, or it only hides others.
func (m *layerMask) hidesEntry(name string, kind byte) (bool, error) {
	folder, base := path.Split(name)
	folder = path.Clean(folder)
	switch {
	case base == opaque:
		m.nextOpaque = append(m.nextOpaque, folder)
		return true, m.countBytes(folder)
	case strings.HasPrefix(base, whiteout):
		m.nextHidden = append(m.nextHidden, path.Join(folder, strings.TrimPrefix(base, whiteout)))
		return true, m.countBytes(name)
	}
	for at := name; ; at = path.Dir(at) {
		if m.hidden[at] || at != name && m.opaque[at] {
			return true, nil
		}
		if at == "." {
			break
		}
	}
	if kind == tar.TypeDir {
		return false, nil
	}
	m.nextHidden = append(m.nextHidden, name)
	return false, m.countBytes(name)
}

// countBytes counts a name that is remembered.
func (m *layerMask) countBytes(name string) error {
	if m.bytes += len(name); m.bytes > maxMask {
		return fleet.Errorf(fleet.CodeInvalid, "the names of its files have more than %d MiB", maxMask>>20)
	}
	return nil
}

// endLayer makes what a layer hides hold for the layers below it.
func (m *layerMask) endLayer() {
	for _, name := range m.nextHidden {
		m.hidden[name] = true
	}
	for _, name := range m.nextOpaque {
		m.opaque[name] = true
	}
	m.nextHidden, m.nextOpaque = nil, nil
}
