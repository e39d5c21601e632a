package artifacts_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"skerry/edge/artifacts"
	"skerry/edge/store"
	"skerry/fleet"
)

// site is an edge's store, a fetcher, and an allocation's folder.
type site struct {
	dir     string
	fetcher *artifacts.Fetcher
	root    string
	store   *store.Store
	log     bytes.Buffer
}

func newSite(tb testing.TB) *site {
	tb.Helper()
	s := &site{dir: tb.TempDir()}
	s.root = filepath.Join(s.dir, "alloc")
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		tb.Fatal(err)
	}
	s.restart(tb)
	return s
}

// restart opens the store and the fetcher again on the same disk, as after a reboot.
func (s *site) restart(tb testing.TB) {
	tb.Helper()
	log := slog.New(slog.NewJSONHandler(&s.log, nil))
	var err error
	s.store, err = store.Open(store.Config{Dir: filepath.Join(s.dir, "data", "store"), MaxBytes: 16 << 20, Now: time.Now, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	s.fetcher = artifacts.NewFetcher(artifacts.Config{
		Store: s.store, Hidden: filepath.Join(s.dir, "data"), Now: time.Now, Log: log,
		Limits: artifacts.Limits{Bytes: 4 << 20, Files: 50},
	})
}

func (s *site) fetch(source, mode, dest string) (artifacts.Result, error) {
	parsed, err := artifacts.ParseSource(source, nil)
	if err != nil {
		return artifacts.Result{}, err
	}
	return s.fetcher.Fetch(context.Background(), artifacts.Request{Source: parsed, Mode: mode, Root: s.root, Dest: dest})
}

func (s *site) mustFetch(tb testing.TB, source, mode, dest string) artifacts.Result {
	tb.Helper()
	r, err := s.fetch(source, mode, dest)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func (s *site) mustHave(tb testing.TB, name, want string) {
	tb.Helper()
	if got, err := os.ReadFile(filepath.Join(s.root, name)); err != nil || string(got) != want {
		tb.Errorf("%s has %.40q, %v; want %.40q", name, got, err, want)
	}
}

// serve serves some contents under their names, and counts requests.
func serve(tb testing.TB, files map[string][]byte) (*httptest.Server, *atomic.Int64) {
	tb.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		content, ok := files[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write(content)
	}))
	tb.Cleanup(s.Close)
	return s, &n
}

type member struct {
	name, content, link string
	kind                byte
}

func file(name, content string) member {
	return member{name: name, content: content, kind: tar.TypeReg}
}

func mustTar(tb testing.TB, members ...member) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Linkname: m.link, Size: int64(len(m.content)), Mode: 0o6755}
		if err := w.WriteHeader(h); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, m.content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func mustZip(tb testing.TB, members ...member) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		f, err := w.Create(m.name)
		if err == nil {
			_, err = io.WriteString(f, m.content)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func mustCompress(tb testing.TB, kind string, content []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch kind {
	case "gz":
		w = gzip.NewWriter(&b)
	case "zst":
		w, err = zstd.NewWriter(&b)
	case "xz":
		w, err = xz.NewWriter(&b)
	}
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// bzipped is "hello\n", as bzip2 writes it.
var bzipped, _ = base64.StdEncoding.DecodeString("QlpoOTFBWSZTWcHAgOIAAAFBAAAQAkSgADDNAMNGKZcXckU4UJDBwIDi")

func TestFetchUnpacksAndCopies(t *testing.T) {
	tree := mustTar(t, file("x-1/bin/tool", "tool"), file("x-1/README", "read"),
		member{name: "x-1/bin/link", kind: tar.TypeSymlink, link: "../README"}, member{name: "x-1/hard", kind: tar.TypeLink, link: "x-1/README"})
	s, server := newSite(t), map[string][]byte{
		"plain.bin": []byte("plain"), "one.tar": mustTar(t, file("only", "one file")), "x.zip": mustZip(t, file("a/b", "zipped")),
		"x.tar": tree, "x.tar.gz": mustCompress(t, "gz", tree), "x.txz": mustCompress(t, "xz", tree), "x.tar.zst": mustCompress(t, "zst", tree),
		"y.gz": mustCompress(t, "gz", []byte("gz")), "y.xz": mustCompress(t, "xz", []byte("xz")), "y.zst": mustCompress(t, "zst", []byte("zst")), "y.bz2": bzipped,
	}
	srv, _ := serve(t, server)
	for _, c := range []struct{ source, mode, dest, name, want string }{
		{"plain.bin", fleet.ArtifactAny, "task/local", "task/local/plain.bin", "plain"},
		{"plain.bin?filename=other", fleet.ArtifactAny, "task/local", "task/local/other", "plain"},
		{"plain.bin", fleet.ArtifactFile, "task/local/named", "task/local/named", "plain"},
		{"x.tar.gz?archive=false", fleet.ArtifactAny, "raw", "raw/x.tar.gz", string(server["x.tar.gz"])},
		{"plain.bin?archive=false", fleet.ArtifactFile, "task/local/named", "task/local/named", "plain"},
		{"one.tar", fleet.ArtifactFile, "task/single", "task/single", "one file"},
		{"x.zip", fleet.ArtifactAny, "zip", "zip/a/b", "zipped"},
		{"x.tar", fleet.ArtifactAny, "t1", "t1/x-1/bin/link", "read"},
		{"x.tar.gz", fleet.ArtifactDir, "t2", "t2/x-1/bin/tool", "tool"},
		{"x.txz", fleet.ArtifactAny, "t3", "t3/x-1/hard", "read"},
		{"x.tar.zst//x-*", fleet.ArtifactAny, "t4", "t4/bin/tool", "tool"},
		{"x.tar.zst//x-1/bin/tool", fleet.ArtifactFile, "t5/t", "t5/t", "tool"},
		{"y.gz", fleet.ArtifactAny, "y", "y/y", "gz"}, {"y.xz", fleet.ArtifactFile, "y/file", "y/file", "xz"},
		{"y.zst", fleet.ArtifactAny, "y", "y/y", "zst"}, {"y.bz2", fleet.ArtifactAny, "y", "y/y", "hello\n"},
	} {
		if _, err := s.fetch(srv.URL+"/"+c.source, c.mode, c.dest); err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		s.mustHave(t, c.name, c.want)
	}
	info, err := os.Stat(filepath.Join(s.root, "t2/x-1/bin/tool"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("its mode is %v, %v: want no bits but those of rights", info.Mode(), err)
	}
}

func TestArchivesThatAreRefused(t *testing.T) {
	many := make([]member, 51)
	for i := range many {
		many[i] = file(fmt.Sprint("f", i), "")
	}
	bomb := strings.Repeat("\x00", 5<<20)
	link := func(name, to string) member { return member{name: name, kind: tar.TypeSymlink, link: to} }
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"up.tar":       {mustTar(t, file("../evil", "x")), "outside of the destination"},
		"deep.tar":     {mustTar(t, file("a/../../evil", "x")), "outside of the destination"},
		"abs.tar":      {mustTar(t, file("/etc/evil", "x")), "outside of the destination"},
		"zip.zip":      {mustZip(t, file("../evil", "x")), "outside of the destination"},
		"link.tar":     {mustTar(t, link("l", "../evil")), "outside of the destination"},
		"abslink.tar":  {mustTar(t, link("l", "/etc")), "outside of the destination"},
		"through.tar":  {mustTar(t, link("l", ".."), file("l/evil", "x")), "outside of the destination"},
		"chain.tar":    {mustTar(t, file("p/q/f", ""), link("p/q/x", "../.."), link("y", "p/q/x/..")), "outside of the destination"},
		"hard.tar":     {mustTar(t, member{name: "h", kind: tar.TypeLink, link: "../secret"}), "outside of the destination"},
		"hardlink.tar": {mustTar(t, link("s", "none"), member{name: "h", kind: tar.TypeLink, link: "s"}), "no earlier file"},
		"dev.tar":      {mustTar(t, member{name: "d", kind: tar.TypeChar}), "special file"},
		"fifo.tar":     {mustTar(t, member{name: "d", kind: tar.TypeFifo}), "special file"},
		"many.tar":     {mustTar(t, many...), "more than 50 files"},
		"bomb.tar.gz":  {mustCompress(t, "gz", mustTar(t, file("zero", bomb))), "larger than is allowed"},
		"bomb.gz":      {mustCompress(t, "gz", []byte(bomb)), "larger than is allowed"},
		"bomb.zip":     {mustZip(t, file("zero", bomb)), "larger than is allowed"},
		"bomb.xz":      {mustCompress(t, "xz", []byte(bomb)), "larger than is allowed"},
		"bomb.zst":     {mustCompress(t, "zst", []byte(bomb)), "larger than is allowed"},
		"text.tar.gz":  {[]byte("no archive at all"), "not the archive that its name promises"},
		"text.zip":     {[]byte("no archive at all"), "not the archive that its name promises"},
		"cut.tar.gz":   {mustCompress(t, "gz", mustTar(t, file("f", bomb[:9999])))[:60], "not the archive that its name promises"},
		"window.xz":    {append(mustCompress(t, "xz", []byte("x"))[:14], 0x21, 1, 40, 0, 0, 0, 0, 0), "larger than 64 MiB"},
	} {
		s := newSite(t)
		srv, _ := serve(t, map[string][]byte{name: c.content})
		if err := os.WriteFile(filepath.Join(s.root, "secret"), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := s.fetch(srv.URL+"/"+name, fleet.ArtifactAny, "task/local")
		if fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		for _, place := range []string{"evil", "task/evil", "../evil"} {
			if _, err := os.Lstat(filepath.Join(s.root, place)); err == nil {
				t.Errorf("%s: it wrote %s", name, place)
			}
		}
	}
}

// An archive for which the disk has no room now is no bad archive: it is unpacked once there is space.
func TestDiskWithoutRoom(t *testing.T) {
	s := newSite(t)
	srv, n := serve(t, map[string][]byte{"a.tar": mustTar(t, file("f", "content"))})
	var room int64 = 64 << 20
	s.fetcher = artifacts.NewFetcher(artifacts.Config{
		Store: s.store, Hidden: filepath.Join(s.dir, "data"), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Free: func(string) (free, total int64, err error) { return room, 1 << 30, nil },
	})
	_, err := s.fetch(srv.URL+"/a.tar", fleet.ArtifactAny, "task/local")
	if fleet.CodeOf(err) != fleet.CodeUnavailable || !strings.Contains(err.Error(), "too little free space") {
		t.Errorf("on a full disk: %v", err)
	}
	room = 128 << 20
	s.mustFetch(t, srv.URL+"/a.tar", fleet.ArtifactAny, "task/local")
	if n.Load() != 1 {
		t.Errorf("it was fetched %d times", n.Load())
	}
}

// A source that is gone is not missed, by a start after a reboot neither.
func TestSourceGone(t *testing.T) {
	s := newSite(t)
	srv, n := serve(t, map[string][]byte{"a": []byte("content")})
	source := srv.URL + "/a"
	if r := s.mustFetch(t, source, fleet.ArtifactAny, "one"); r.Stored || r.Bytes != 7 {
		t.Errorf("the first time: %+v", r)
	}
	srv.Close()
	s.restart(t)
	if r := s.mustFetch(t, source, fleet.ArtifactAny, "two"); !r.Stored || n.Load() != 1 {
		t.Errorf("the second time: %+v, %d requests", r, n.Load())
	}
	s.mustHave(t, "two/a", "content")
	if _, err := s.fetch(srv.URL+"/b", fleet.ArtifactAny, "x"); err == nil || fleet.CodeOf(err) != fleet.CodeInternal {
		t.Errorf("what is not in the store: %v", err)
	}
}

func TestDamagedCopyIsFetchedAgain(t *testing.T) {
	s := newSite(t)
	srv, n := serve(t, map[string][]byte{"a": []byte("content")})
	s.mustFetch(t, srv.URL+"/a", fleet.ArtifactAny, "one")
	blobs, err := filepath.Glob(filepath.Join(s.dir, "data", "store", "blobs", "*"))
	if err != nil || len(blobs) != 1 {
		t.Fatal(blobs, err)
	}
	if err := os.WriteFile(blobs[0], []byte("cOntent"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	if r := s.mustFetch(t, srv.URL+"/a", fleet.ArtifactAny, "two"); r.Stored || n.Load() != 2 {
		t.Errorf("it took the damaged copy: %+v", r)
	}
	s.mustHave(t, "two/a", "content")
}

func TestWrongChecksum(t *testing.T) {
	s := newSite(t)
	srv, _ := serve(t, map[string][]byte{"a": []byte("content")})
	_, err := s.fetch(srv.URL+"/a?checksum=sha256:"+zeros(64), fleet.ArtifactAny, "one")
	if fleet.CodeOf(err) != fleet.CodeInvalid || !strings.Contains(err.Error(), "checksum") {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(s.root, "one")); err == nil {
		t.Error("the content is in the task's folder")
	}
}

// cutServer cuts the connection after each part of a content, which changes after some requests.
type cutServer struct {
	content  []byte
	part     int
	noRanges bool
	version  atomic.Int64
	ranges   []string
}

func (c *cutServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.ranges = append(c.ranges, r.Header.Get("Range"))
	from, tag := 0, fmt.Sprintf(`"v%d"`, c.version.Load())
	w.Header().Set("Etag", tag)
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil && !c.noRanges && r.Header.Get("If-Range") == tag {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(c.content)-1, len(c.content)))
		w.Header().Set("Content-Length", fmt.Sprint(len(c.content)-from))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		from = 0
		w.Header().Set("Content-Length", fmt.Sprint(len(c.content)))
	}
	w.Write(c.content[from:min(from+c.part, len(c.content))])
}

func TestCutDownloadGoesOn(t *testing.T) {
	s, c := newSite(t), &cutServer{content: bytes.Repeat([]byte("0123456789"), 1000), part: 4000}
	srv := httptest.NewServer(c)
	defer srv.Close()
	s.mustFetch(t, srv.URL+"/a", fleet.ArtifactAny, "one")
	s.mustHave(t, "one/a", string(c.content))
	if want := []string{"", "bytes=4000-", "bytes=8000-"}; fmt.Sprint(c.ranges) != fmt.Sprint(want) {
		t.Errorf("it asked for %q, want %q", c.ranges, want)
	}
}

func TestCutDownloadOfAChangedSourceBeginsAnew(t *testing.T) {
	s, c := newSite(t), &cutServer{content: bytes.Repeat([]byte("a"), 9000), part: 4000}
	srv := httptest.NewServer(c)
	defer srv.Close()
	parsed, err := artifacts.ParseSource(srv.URL+"/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.store.Begin(context.Background(), parsed.Key(nil))
	if err == nil {
		err = d.Restart(`"v0"`)
	}
	if err == nil {
		_, err = d.Write(bytes.Repeat([]byte("b"), 5000))
	}
	if err == nil {
		err = d.Suspend()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.version.Store(1)
	c.part = 9000
	s.restart(t)
	s.mustFetch(t, srv.URL+"/a", fleet.ArtifactAny, "one")
	s.mustHave(t, "one/a", string(c.content))
	if want := []string{"bytes=5000-"}; fmt.Sprint(c.ranges) != fmt.Sprint(want) {
		t.Errorf("it asked for %q, want %q", c.ranges, want)
	}
}

func TestServerThatOnlyCuts(t *testing.T) {
	s, c := newSite(t), &cutServer{content: []byte("0123456789"), part: 5, noRanges: true}
	srv := httptest.NewServer(c)
	defer srv.Close()
	if _, err := s.fetch(srv.URL+"/a", fleet.ArtifactAny, "one"); err == nil || !strings.Contains(err.Error(), "was interrupted") {
		t.Error(err)
	}
}

func TestRedirectsAreBounded(t *testing.T) {
	s := newSite(t)
	var srv *httptest.Server
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, srv.URL+"/again", http.StatusFound) }))
	defer srv.Close()
	if _, err := s.fetch(srv.URL+"/a", fleet.ArtifactAny, "one"); err == nil || !strings.Contains(err.Error(), "redirects more than 10 times") {
		t.Error(err)
	}
}

func TestFilesOfTheEdge(t *testing.T) {
	s := newSite(t)
	stick := filepath.Join(s.dir, "stick")
	for name, content := range map[string]string{"a.txt": "first", "folder/b": "b"} {
		path := filepath.Join(stick, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.mustFetch(t, stick+"/a.txt", fleet.ArtifactAny, "one")
	s.mustHave(t, "one/a.txt", "first")
	if err := os.WriteFile(stick+"/a.txt", []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.mustFetch(t, "file://"+stick+"/a.txt", fleet.ArtifactFile, "two")
	s.mustHave(t, "two", "second")
	s.mustFetch(t, stick+"/folder", fleet.ArtifactDir, "three")
	s.mustHave(t, "three/b", "b")
	if err := os.RemoveAll(stick); err != nil {
		t.Fatal(err)
	}
	s.mustFetch(t, stick+"/a.txt", fleet.ArtifactFile, "four")
	s.mustHave(t, "four", "second")
	s.mustFetch(t, stick+"/folder", fleet.ArtifactAny, "five")
	s.mustHave(t, "five/b", "b")
	for _, hidden := range []string{s.dir, s.dir + "/data/store/version", s.dir + "/alloc/../data"} {
		if _, err := s.fetch(hidden, fleet.ArtifactAny, "x"); fleet.CodeOf(err) != fleet.CodeForbidden {
			t.Errorf("%s: %v", hidden, err)
		}
	}
	if _, err := s.fetch(s.dir+"/none", fleet.ArtifactAny, "x"); err == nil || !strings.Contains(err.Error(), "not on this edge") {
		t.Error(err)
	}
}

func TestGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no program git")
	}
	s := newSite(t)
	repository := filepath.Join(s.dir, "repository")
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = repository
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.MkdirAll(filepath.Join(repository, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	git("init", "-q", "-b", "main")
	var commits []string
	for _, content := range []string{"first", "second"} {
		if err := os.WriteFile(filepath.Join(repository, "sub", "f"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		git("add", ".")
		git("commit", "-q", "-m", content)
		commits = append(commits, git("rev-parse", "HEAD"))
	}
	git("tag", "v1", commits[0])
	source := "git::file://" + repository
	for query, want := range map[string]string{"": "second", "?ref=main": "second", "?ref=v1&depth=1": "first", "?ref=" + commits[0]: "first", "?ref=" + commits[0][:8]: "first"} {
		s.mustFetch(t, source+"//sub"+query, fleet.ArtifactAny, "one")
		s.mustHave(t, "one/f", want)
	}
	s.mustFetch(t, source, fleet.ArtifactAny, "all")
	if _, err := os.Lstat(filepath.Join(s.root, "all", ".git")); err == nil {
		t.Error("the repository itself is there")
	}
	if _, err := s.fetch(source+"?ref=none", fleet.ArtifactAny, "x"); err == nil || !strings.Contains(err.Error(), "none") {
		t.Error(err)
	}
	if err := os.RemoveAll(repository); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	s.mustFetch(t, source+"//sub?ref=v1&depth=1", fleet.ArtifactAny, "again")
	s.mustHave(t, "again/f", "first")
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte(mustTar(f, file("a", "b"))), uint8(0))
	f.Add([]byte(mustZip(f, file("a", "b"))), uint8(1))
	f.Add(mustCompress(f, "xz", []byte("x")), uint8(2))
	f.Add(mustCompress(f, "zst", []byte("x")), uint8(3))
	f.Fuzz(func(t *testing.T, content []byte, kind uint8) {
		s := newSite(t)
		name := filepath.Join(s.dir, "f."+[]string{"tar", "zip", "xz", "zst", "gz", "bz2", "tar.xz"}[kind%7])
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = s.fetch(name, fleet.ArtifactAny, "one")
		list, err := os.ReadDir(s.dir)
		if err != nil || len(list) != 3 {
			t.Errorf("the folder above has %v, %v", list, err)
		}
	})
}
