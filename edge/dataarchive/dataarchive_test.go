package dataarchive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/edge/dataarchive"
	"skerry/fleet"
)

var (
	parts  = []string{"alloc/data", "web/local"}
	limits = dataarchive.Limits{Bytes: 1 << 20, Entries: 100}
)

func mustWrite(tb testing.TB, root, name, content string, mode fs.FileMode) {
	tb.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		tb.Fatal(err)
	}
}

func mustLink(tb testing.TB, target, path string) {
	tb.Helper()
	if err := os.Symlink(target, path); err != nil {
		tb.Fatal(err)
	}
}

// mustArchive archives the parts of a folder.
func mustArchive(tb testing.TB, root string) []byte {
	tb.Helper()
	var b bytes.Buffer
	var list []dataarchive.Part
	for _, name := range parts {
		list = append(list, dataarchive.Part{Name: name, Dir: filepath.Join(root, name)})
	}
	if err := dataarchive.Write(&b, list); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// TestArchive: contents, modes, times and inner links come over; special files and links that lead outside do not.
func TestArchive(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	mustWrite(t, from, "web/local/deep/er/b", "bb", 0o755)
	mustWrite(t, from, "web/local/deep.txt", "", 0o600)
	mustWrite(t, from, "alloc/data/closed/a", "aaa", 0o440)
	mustWrite(t, from, "secret", "outside", 0o600)
	data := filepath.Join(from, "alloc/data")
	mustLink(t, "closed/a", filepath.Join(data, "inside"))
	mustLink(t, "missing", filepath.Join(data, "dangling"))
	mustLink(t, "loop", filepath.Join(data, "loop"))
	mustLink(t, "../../secret", filepath.Join(data, "out"))
	mustLink(t, filepath.Join(from, "secret"), filepath.Join(data, "absolute"))
	mustLink(t, ".", filepath.Join(data, "closed", "here"))
	mustLink(t, "closed/here/../../../secret", filepath.Join(data, "chain"))
	if err := syscall.Mkfifo(filepath.Join(data, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := errors.Join(os.Chtimes(filepath.Join(data, "closed", "a"), old, old), os.Chmod(filepath.Join(data, "closed"), 0o550)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, root := range []string{from, to} {
			_ = os.Chmod(filepath.Join(root, "alloc/data/closed"), 0o700) // so that it can be removed
		}
	})
	sum, err := dataarchive.Read(bytes.NewReader(mustArchive(t, from)), to, parts, limits)
	if want := (dataarchive.Sum{Bytes: 5, Files: 3, LeftOut: 4}); err != nil || sum != want {
		t.Fatalf("%+v, %v, want %+v", sum, err, want)
	}
	for name, want := range map[string]string{"alloc/data/inside": "aaa", "web/local/deep/er/b": "bb", "web/local/deep.txt": ""} {
		if b, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for name, want := range map[string]fs.FileMode{"alloc/data/closed": 0o550 | fs.ModeDir, "alloc/data/closed/a": 0o440, "web/local/deep/er/b": 0o755} {
		if info, err := os.Lstat(filepath.Join(to, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v", name, info.Mode(), want)
		}
	}
	if info, err := os.Stat(filepath.Join(to, "alloc/data/closed/a")); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("%v, %v", info, err)
	}
	for _, name := range []string{"dangling", "loop"} {
		if _, err := os.Readlink(filepath.Join(to, "alloc/data", name)); err != nil {
			t.Error(err)
		}
	}
}

// TestCutArchive: every archive that ends too early is an error, wherever it is cut.
func TestCutArchive(t *testing.T) {
	from := t.TempDir()
	mustWrite(t, from, "alloc/data/a", strings.Repeat("a", 700), 0o600)
	mustWrite(t, from, "web/local/b", "b", 0o600)
	all := mustArchive(t, from)
	for n := 0; n < len(all)-2048; n += 256 { // the last entry, and the end of a tar
		if _, err := dataarchive.Read(bytes.NewReader(all[:n]), t.TempDir(), parts, limits); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("after %d of %d bytes: %v", n, len(all), err)
		}
	}
}

// mustTar makes a tar of headers; a file has its name as content.
func mustTar(tb testing.TB, headers ...tar.Header) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range append(headers, tar.Header{Name: "end", Typeflag: tar.TypeReg}) {
		if h.Mode = 0o700; h.Typeflag == tar.TypeReg && h.Name != "end" {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, h.Name[:h.Size]); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func folder(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir} }
func file(name string) tar.Header   { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
}

var hostile = map[string][]tar.Header{
	"a name that leads outside":           {folder("alloc/data"), file("alloc/data/../../../x")},
	"an absolute name":                    {folder("/alloc/data")},
	"a link that leads outside":           {folder("alloc/data"), link("alloc/data/l", "../../x")},
	"an absolute link":                    {folder("alloc/data"), link("alloc/data/l", "/etc/passwd")},
	"a part that is a link":               {link("alloc/data", "../..")},
	"links that lead outside together":    {folder("alloc/data"), folder("alloc/data/a"), folder("alloc/data/a/b"), link("alloc/data/a/b/up", "../.."), link("alloc/data/out", "a/b/up/../x")},
	"a file below a link":                 {folder("alloc/data"), link("alloc/data/l", "."), file("alloc/data/l/x")},
	"a file twice":                        {folder("alloc/data"), file("alloc/data/x"), file("alloc/data/x")},
	"a file in place of a link":           {folder("alloc/data"), link("alloc/data/x", "y"), file("alloc/data/x")},
	"a part twice":                        {folder("alloc/data"), folder("web/local"), folder("alloc/data")},
	"a hard link":                         {folder("alloc/data"), {Name: "alloc/data/h", Typeflag: tar.TypeLink, Linkname: "alloc/data/x"}},
	"a device":                            {folder("alloc/data"), {Name: "alloc/data/d", Typeflag: tar.TypeBlock}},
	"a file before its folder":            {file("alloc/data/x")},
	"more files than allowed":             append([]tar.Header{folder("alloc/data")}, slicesOf(101)...),
	"an owner that no system has":         {{Name: "alloc/data", Typeflag: tar.TypeDir, Uid: -2}},
	"a name that is nested too deep":      {folder("alloc/data"), file("alloc/data/" + strings.Repeat("d/", 250) + "x")},
	"more bytes than allowed in one file": {folder("alloc/data"), file("alloc/data/" + strings.Repeat("x", 90))},
}

func slicesOf(n int) (files []tar.Header) {
	for i := range n {
		files = append(files, file("alloc/data/"+strings.Repeat("x", i+1)))
	}
	return files
}

// TestHostileArchive: no archive writes outside, or more than is allowed, and each of these is refused for good.
func TestHostileArchive(t *testing.T) {
	for name, headers := range hostile {
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			to := filepath.Join(above, "alloc")
			if err := os.Mkdir(to, 0o700); err != nil {
				t.Fatal(err)
			}
			most := limits
			if strings.Contains(name, "bytes") {
				most.Bytes = 100
			}
			_, err := dataarchive.Read(bytes.NewReader(mustTar(t, headers...)), to, parts, most)
			if fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Errorf("%v", err)
			}
			if entries, err := os.ReadDir(above); err != nil || len(entries) != 1 {
				t.Errorf("%v, %v", entries, err)
			}
		})
	}
}

// TestUnwantedParts: folders of tasks that the replacement does not have are passed over.
func TestUnwantedParts(t *testing.T) {
	to := t.TempDir()
	sum, err := dataarchive.Read(bytes.NewReader(mustTar(t, folder("gone/local"), file("gone/local/x"), folder("web/secrets"), file("web/secrets/token"), folder("web/local"), file("web/local/y"))), to, parts, limits)
	if err != nil || sum.Files != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	for _, name := range []string{"gone", "web/secrets"} {
		if _, err := os.Lstat(filepath.Join(to, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzRead: no bytes make it panic, write outside of its folder, or write more than is allowed.
func FuzzRead(f *testing.F) {
	from := f.TempDir()
	mustWrite(f, from, "alloc/data/a", "a", 0o600)
	mustWrite(f, from, "web/local/b", "b", 0o600)
	f.Add(mustArchive(f, from))
	for _, headers := range hostile {
		f.Add(mustTar(f, headers...))
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		above := t.TempDir()
		to := filepath.Join(above, "alloc")
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		sum, err := dataarchive.Read(bytes.NewReader(archive), to, parts, dataarchive.Limits{Bytes: 4096, Entries: 20})
		if err == nil && (sum.Bytes > 4096 || sum.Files > 20) {
			t.Fatalf("%+v", sum)
		}
		if entries, err := os.ReadDir(above); err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
	})
}
