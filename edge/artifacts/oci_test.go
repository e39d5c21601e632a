package artifacts_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/edge/artifacts"
	"skerry/fleet"
)

const (
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	layerTar    = "application/vnd.oci.image.layer.v1.tar"
)

// ociRegistry is a registry on the loopback interface with one repository, shop/web.
type ociRegistry struct {
	*httptest.Server
	user, password string // "": anybody may read

	mu    sync.Mutex
	blobs map[string][]byte
	kinds map[string]string // of manifests, by tag and digest
	names map[string]string // digests by tag
	asked map[string]int    // requests of blobs
	cut   int               // bytes after which the next answer with a blob is cut; 0: it is not
}

func newOCIRegistry(tb testing.TB) *ociRegistry {
	tb.Helper()
	r := &ociRegistry{blobs: map[string][]byte{}, kinds: map[string]string{}, names: map[string]string{}, asked: map[string]int{}}
	r.Server = httptest.NewServer(r)
	tb.Cleanup(r.Close)
	return r
}

func (r *ociRegistry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if user, password, _ := q.BasicAuth(); user != r.user || password != r.password {
		w.Header().Set("Www-Authenticate", `Basic realm="test"`)
		http.Error(w, "who is it?", http.StatusUnauthorized)
		return
	}
	last := q.URL.Path[strings.LastIndex(q.URL.Path, "/")+1:]
	digest := last
	if named, ok := r.names[last]; ok {
		digest = named
	}
	content, ok := r.blobs[digest]
	isManifest := strings.HasPrefix(q.URL.Path, "/v2/shop/web/manifests/")
	switch {
	case !ok || isManifest != (r.kinds[digest] != "") || !isManifest && !strings.HasPrefix(q.URL.Path, "/v2/shop/web/blobs/"):
		http.NotFound(w, q)
	case isManifest:
		w.Header().Set("Content-Type", r.kinds[digest])
		w.Header().Set("Docker-Content-Digest", digest)
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content)
	case r.cut > 0:
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:r.cut])
		r.cut, r.asked[digest] = 0, r.asked[digest]+1
		panic(http.ErrAbortHandler)
	default:
		r.asked[digest]++
		http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(content))
	}
}

// source is the address of the repository with a tag or digest.
func (r *ociRegistry) source(suffix string) string {
	return "oci://" + strings.TrimPrefix(r.URL, "http://") + "/shop/web" + suffix
}

func (r *ociRegistry) requests(digest string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[digest]
}

func (r *ociRegistry) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func ociDigest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (r *ociRegistry) push(b []byte) string {
	digest := ociDigest(b)
	r.set(func() { r.blobs[digest] = b })
	return digest
}

// layer is a layer of an image: what a manifest says of it.
type layer map[string]any

func (r *ociRegistry) layer(kind, title string, content []byte) layer {
	l := layer{"mediaType": kind, "digest": r.push(content), "size": len(content)}
	if title != "" {
		l["annotations"] = map[string]string{"org.opencontainers.image.title": title}
	}
	return l
}

// pushManifest stores a manifest or an index under a tag, and returns its digest.
func (r *ociRegistry) pushManifest(tb testing.TB, tag, kind string, manifest map[string]any) string {
	tb.Helper()
	manifest["schemaVersion"], manifest["mediaType"] = 2, kind
	b, err := json.Marshal(manifest)
	if err != nil {
		tb.Fatal(err)
	}
	digest := r.push(b)
	r.set(func() { r.names[tag], r.kinds[digest] = digest, kind })
	return digest
}

func (r *ociRegistry) image(tb testing.TB, tag string, layers ...layer) string {
	tb.Helper()
	config := r.layer("application/vnd.oci.empty.v1+json", "", []byte("{}"))
	return r.pushManifest(tb, tag, ociManifest, map[string]any{"config": config, "layers": layers})
}

// Files keep their names, archives are unpacked, and files of later layers come first.
func TestOCIArtifacts(t *testing.T) {
	r, s := newOCIRegistry(t), newSite(t)
	link := member{name: "bin/link", kind: tar.TypeSymlink, link: "../etc/conf"}
	folder := r.layer(layerTar+"+gzip", "data", mustCompress(t, "gz", mustTar(t, file("data/f", "folder"))))
	folder["annotations"].(map[string]string)["io.deis.oras.content.unpack"] = "true"
	docker := "application/vnd.docker.image.rootfs.diff.tar.gzip"
	r.image(t, "files", r.layer("text/plain", "a.txt", []byte("a")), r.layer("application/vnd.x", "sub/b.tar.gz", []byte("b")), folder)
	r.image(t, "layers",
		r.layer(layerTar, "", mustTar(t, file("etc/conf", "old"), file("etc/gone", "x"), file("var/a", "x"), file("var/b", "x"), file("was/file", "x"), link)),
		r.layer("application/vnd.oci.empty.v1+json", "", []byte("{}")),
		r.layer(docker, "", mustCompress(t, "gz", mustTar(t, file("etc/conf", "new"), file("etc/.wh.gone", ""), file("var/.wh..wh..opq", ""), file("var/c", "c"), file("was", "now a file")))),
		r.layer(layerTar+"+zstd", "", mustCompress(t, "zst", mustTar(t, file("bin/tool", "tool")))))
	r.image(t, "latest", r.layer(layerTar, "", mustTar(t, file("only", "one"))))
	elsewhere := r.image(t, "elsewhere", r.layer("text/plain", "x", []byte("wrong")))
	here := r.image(t, "here", r.layer("text/plain", "x", []byte("right")))
	r.pushManifest(t, "index", ociIndex, map[string]any{"manifests": []any{
		map[string]any{"mediaType": ociManifest, "digest": elsewhere, "size": 1, "platform": map[string]string{"os": "plan9", "architecture": "mips"}},
		map[string]any{"mediaType": ociManifest, "digest": here, "size": 1, "platform": map[string]string{"os": runtime.GOOS, "architecture": runtime.GOARCH}},
	}})
	for _, c := range []struct{ source, mode, dest, name, want string }{
		{":files", fleet.ArtifactAny, "f", "f/a.txt", "a"},
		{":files", fleet.ArtifactAny, "f", "f/sub/b.tar.gz", "b"},
		{":files", fleet.ArtifactDir, "f", "f/data/f", "folder"},
		{":files//sub", fleet.ArtifactAny, "g", "g/b.tar.gz", "b"},
		{":layers", fleet.ArtifactAny, "l", "l/bin/link", "new"},
		{":layers", fleet.ArtifactAny, "l", "l/bin/tool", "tool"},
		{":layers", fleet.ArtifactAny, "l", "l/var/c", "c"},
		{":layers", fleet.ArtifactAny, "l", "l/was", "now a file"},
		{"", fleet.ArtifactFile, "single", "single", "one"},
		{"@" + here, fleet.ArtifactAny, "h", "h/x", "right"},
		{":index", fleet.ArtifactAny, "i", "i/x", "right"},
	} {
		if _, err := s.fetch(r.source(c.source), c.mode, c.dest); err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		s.mustHave(t, c.name, c.want)
	}
	for _, hidden := range []string{"l/etc/gone", "l/etc/.wh.gone", "l/var/a", "l/var/b", "l/var/.wh..wh..opq"} {
		if _, err := os.Lstat(filepath.Join(s.root, hidden)); err == nil {
			t.Errorf("%s is there", hidden)
		}
	}
}

// Contents in the store are not fetched again: neither an image nor a layer that another image has.
func TestOCILayersAreFetchedOnce(t *testing.T) {
	r, s := newOCIRegistry(t), newSite(t)
	shared, first := r.layer("text/plain", "shared", []byte("shared")), r.layer("text/plain", "v", []byte("one"))
	r.image(t, "1", shared, first)
	digest := r.image(t, "2", shared, r.layer("text/plain", "v", []byte("two")))
	s.mustFetch(t, r.source(":1"), fleet.ArtifactAny, "one")
	s.mustFetch(t, r.source(":2"), fleet.ArtifactAny, "two")
	if n := r.requests(shared["digest"].(string)); n != 1 {
		t.Errorf("the shared layer was fetched %d times", n)
	}
	r.Close()
	s.restart(t)
	if res := s.mustFetch(t, r.source(":1"), fleet.ArtifactAny, "again"); !res.Stored {
		t.Errorf("%+v", res)
	}
	s.mustHave(t, "again/v", "one")
	s.mustHave(t, "two/v", "two")
	if _, err := s.fetch(r.source("@"+digest), fleet.ArtifactAny, "x"); err == nil {
		t.Error("another name is in the store")
	}
}

// A layer that was cut goes on where it ended, and a damaged one is fetched again.
func TestOCILayerThatWasCut(t *testing.T) {
	r, s := newOCIRegistry(t), newSite(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	l := r.layer("text/plain", "large", large)
	r.image(t, "1", l)
	r.set(func() { r.cut = 100_000 })
	s.mustFetch(t, r.source(":1"), fleet.ArtifactAny, "one")
	s.mustHave(t, "one/large", string(large))
	if n := r.requests(l["digest"].(string)); n != 3 { // the cut one, and one with another for the rest
		t.Errorf("%d requests", n)
	}
	blob := filepath.Join(s.dir, "data", "store", "blobs", strings.TrimPrefix(l["digest"].(string), "sha256:"))
	damaged := bytes.Clone(large)
	damaged[5] = 'X'
	if err := os.WriteFile(blob, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	s.mustFetch(t, r.source(":1"), fleet.ArtifactAny, "two")
	s.mustHave(t, "two/large", string(large))
}

func TestOCICredentials(t *testing.T) {
	r, s := newOCIRegistry(t), newSite(t)
	r.image(t, "1", r.layer("text/plain", "a", []byte("a")))
	r.set(func() { r.user, r.password = "shop", "secret" })
	if _, err := s.fetch(r.source(":1"), fleet.ArtifactAny, "x"); err == nil {
		t.Error("without credentials")
	}
	s.mustFetch(t, strings.Replace(r.source(":1"), "oci://", "oci://shop:secret@", 1), fleet.ArtifactAny, "x")
	s.mustHave(t, "x/a", "a")
}

func TestOCIArtifactsThatAreRefused(t *testing.T) {
	r := newOCIRegistry(t)
	plain := func(title string) layer { return r.layer("text/plain", title, []byte("x")) }
	tarOf := func(m ...member) layer { return r.layer(layerTar, "", mustTar(t, m...)) }
	wrong := plain("a")
	wrong["digest"] = "sha256:" + zeros(64)
	r.set(func() { r.blobs["sha256:"+zeros(64)] = []byte("y") })
	huge := plain("a")
	huge["size"] = 1 << 40
	odd := plain("a")
	odd["digest"] = "md5:" + zeros(32)
	other := r.image(t, "plan9", plain("a"))
	r.pushManifest(t, "index", ociIndex, map[string]any{"manifests": []any{
		map[string]any{"mediaType": ociManifest, "digest": other, "size": 1, "platform": map[string]string{"os": "plan9", "architecture": "mips"}},
		map[string]any{"mediaType": ociManifest, "digest": other, "size": 1},
	}})
	many := make([]layer, 129)
	for i := range many {
		many[i] = plain("a")
	}
	for tag, c := range map[string]struct {
		layers []layer
		want   string
	}{
		"up":      {[]layer{plain("../evil")}, "outside of the destination"},
		"abs":     {[]layer{tarOf(file("/evil", "x"))}, "outside of the destination"},
		"link":    {[]layer{tarOf(member{name: "l", kind: tar.TypeSymlink, link: ".."}, file("l/evil", "x"))}, "outside of the destination"},
		"device":  {[]layer{tarOf(member{name: "d", kind: tar.TypeChar})}, "special file"},
		"bomb":    {[]layer{tarOf(file("zero", strings.Repeat("\x00", 5<<20)))}, "larger than is allowed"},
		"text":    {[]layer{r.layer(layerTar+"+gzip", "", []byte("no archive"))}, "not the archive"},
		"digest":  {[]layer{wrong}, "checksum"},
		"huge":    {[]layer{huge}, "--store-size"},
		"odd":     {[]layer{odd}, "layer 1 of its manifest has the digest"},
		"untyped": {[]layer{plain("")}, "has no title"},
		"none":    {nil, "0 layers"},
		"many":    {many, "129 layers"},
		"index":   {nil, "nothing for " + runtime.GOOS},
	} {
		if tag != "index" {
			r.image(t, tag, c.layers...)
		}
		s := newSite(t)
		_, err := s.fetch(r.source(":"+tag), fleet.ArtifactAny, "task/local")
		if fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", tag, err, c.want)
		}
		for _, place := range []string{"evil", "task/evil", "../evil"} {
			if _, err := os.Lstat(filepath.Join(s.root, place)); err == nil {
				t.Errorf("%s: it wrote %s", tag, place)
			}
		}
	}
	if _, err := newSite(t).fetch(r.source(":nobody"), fleet.ArtifactAny, "x"); err == nil || fleet.CodeOf(err) == fleet.CodeInvalid {
		t.Errorf("a tag that is not there yet: %v", err)
	}
}

// An allocation keeps the layers of its image, and a prefetched image needs no registry.
func TestPrefetchedOCIImage(t *testing.T) {
	r := newOCIRegistry(t)
	r.image(t, "1", r.layer("text/plain", "a", []byte("content")))
	task := newTask(t, fleet.TaskArtifact{GetterSource: r.source(":1")})
	p := artifacts.NewPrefetcher(task.fetcher, siteNode, map[string]drivers.Driver{})
	job := jobWith(groupWith("web", fleet.Task{Driver: "raw_exec", Artifacts: []fleet.TaskArtifact{{GetterSource: r.source(":1")}}}))
	for range 2 {
		if _, err := p.Fetch(t.Context(), "p1", job); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	if err := task.prepare(t); err != nil {
		t.Fatal(err)
	}
	task.mustHave(t, "web/local/a", "content")
	for _, l := range task.store.List() {
		if len(l.Pinned) != 2 { // by the allocation and by the prefetch
			t.Errorf("%s is pinned by %q", l.Key.Source, l.Pinned)
		}
	}
}

func FuzzOCIManifest(f *testing.F) {
	f.Add([]byte(`{"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:` + zeros(64) + `","size":3}]}`))
	f.Add([]byte(`{"layers":[{"mediaType":"text/plain","digest":"sha256:` + zeros(64) + `","size":3,"annotations":{"org.opencontainers.image.title":"a"}}]}`))
	f.Add([]byte(`{"manifests":[{"digest":"sha256:` + zeros(64) + `","platform":{"os":"linux","architecture":"amd64"}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if n := artifacts.ReadManifests(raw); n > 128 {
			t.Errorf("%d layers", n)
		}
	})
}
