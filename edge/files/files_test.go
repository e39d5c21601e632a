package files_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skerry/edge/files"
	"skerry/fleet"
)

// mustTree makes an allocation's folder beside a private file.
func mustTree(tb testing.TB) string {
	tb.Helper()
	base := tb.TempDir()
	dir := filepath.Join(base, "alloc")
	for name, content := range map[string]string{
		"outside":                "not yours",
		"alloc/alloc/logs/out.0": "hello\nworld\n",
		"alloc/web/local/a.txt":  "0123456789",
		"alloc/web/secrets/key":  "hush",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(base, name)), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, name), []byte(content), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"web/local/up": "../../../outside", "web/local/abs": filepath.Join(base, "outside"), "web/local/dir": "../../..",
		"web/local/in": "../../alloc/logs", "web/local/hush": "../secrets", "web/local/key": "../secrets/key",
		"web/local/loop": "loop", "web/local/deep": "in/out.0", "web/local/gone": "nowhere",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "web/local/pipe"), 0o644); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func read(ctx context.Context, req files.Request) (string, error) {
	r, err := files.Open(ctx, req)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	if err == nil {
		err = r.Close()
	}
	return string(b), err
}

func TestRead(t *testing.T) {
	dir := mustTree(t)
	for _, tc := range []struct {
		path          string
		offset, limit int64
		want          string
		code          fleet.Code
	}{
		{"web/local/a.txt", 0, 0, "0123456789", ""},
		{"/web/local/a.txt", 3, 4, "3456", ""},
		{"web/local/a.txt", 8, 100, "89", ""},
		{"web/local/a.txt", 100, 0, "", ""},
		{"web/../web/local/a.txt", 9, 0, "9", ""},
		{"web/local/deep", 0, 5, "hello", ""},
		{"web/local/in/out.0", 6, 0, "world\n", ""},
		{"../outside", 0, 0, "", fleet.CodeNotFound},
		{"../../../../../../etc/passwd", 0, 0, "", fleet.CodeNotFound},
		{"web/local/up", 0, 0, "", fleet.CodeForbidden},
		{"web/local/abs", 0, 0, "", fleet.CodeForbidden},
		{"web/local/dir/outside", 0, 0, "", fleet.CodeForbidden},
		{"web/local/loop", 0, 0, "", fleet.CodeForbidden},
		{"web/secrets/key", 0, 0, "", fleet.CodeForbidden},
		{"web/local/key", 0, 0, "", fleet.CodeForbidden},
		{"web/local/hush/key", 0, 0, "", fleet.CodeForbidden},
		{"web/local/gone", 0, 0, "", fleet.CodeNotFound},
		{"web/local/a.txt/b", 0, 0, "", fleet.CodeNotFound},
		{"web/local/pipe", 0, 0, "", fleet.CodeInvalid},
		{"web/local", 0, 0, "", fleet.CodeInvalid},
		{"web/local/a.txt", -1, 0, "", fleet.CodeInvalid},
		{"web/local/a.txt", 0, -1, "", fleet.CodeInvalid},
		{"a\x00b", 0, 0, "", fleet.CodeInvalid},
		{strings.Repeat("x", 5000), 0, 0, "", fleet.CodeInvalid},
	} {
		got, err := read(t.Context(), files.Request{Dir: dir, Kind: files.Read, Path: tc.path, Offset: tc.offset, Limit: tc.limit})
		if got != tc.want || (err == nil) != (tc.code == "") || err != nil && fleet.CodeOf(err) != tc.code {
			t.Errorf("%.60q from %d, %d: %q, %v (%s)", tc.path, tc.offset, tc.limit, got, err, fleet.CodeOf(err))
		}
		if err != nil && strings.Contains(err.Error(), filepath.Dir(dir)) {
			t.Errorf("%.60q: the error names the machine's folders: %v", tc.path, err)
		}
	}
}

func TestListAndStat(t *testing.T) {
	dir := mustTree(t)
	text, err := read(t.Context(), files.Request{Dir: dir, Kind: files.List, Path: "/"})
	var infos []fleet.FileInfo
	if err != nil || json.Unmarshal([]byte(text), &infos) != nil {
		t.Fatal(text, err)
	}
	if len(infos) != 2 || infos[0].Name != "alloc" || !infos[1].IsDir || infos[1].Name != "web" {
		t.Fatalf("list: %+v", infos)
	}
	text, err = read(t.Context(), files.Request{Dir: dir, Kind: files.Stat, Path: "web/local/a.txt"})
	var info fleet.FileInfo
	if err != nil || json.Unmarshal([]byte(text), &info) != nil {
		t.Fatal(text, err)
	}
	if info.Name != "a.txt" || info.Size != 10 || info.IsDir || info.FileMode != "-rw-r--r--" || !strings.HasPrefix(info.ContentType, "text/plain") {
		t.Fatalf("stat: %+v", info)
	}
	for path, code := range map[string]fleet.Code{
		"web/secrets": fleet.CodeForbidden, "web/local/hush": fleet.CodeForbidden, "web/local/dir": fleet.CodeForbidden,
		"web/local/a.txt": fleet.CodeInvalid, "nowhere": fleet.CodeNotFound,
	} {
		if _, err := read(t.Context(), files.Request{Dir: dir, Kind: files.List, Path: path}); fleet.CodeOf(err) != code {
			t.Errorf("list %s: %v, want %s", path, err, code)
		}
	}
	if _, err := read(t.Context(), files.Request{Dir: dir, Kind: "delete", Path: "/"}); fleet.CodeOf(err) != fleet.CodeUnsupported {
		t.Errorf("an unknown request: %v", err)
	}
}

// TestStream reads a growing file until its writer has ended.
func TestStream(t *testing.T) {
	dir := mustTree(t)
	name := filepath.Join(dir, "web/local/a.txt")
	ended := make(chan struct{})
	r, err := files.Open(t.Context(), files.Request{Dir: dir, Kind: files.Stream, Path: "web/local/a.txt", Offset: 8, Ended: func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := make([]byte, 2)
	if _, err := io.ReadFull(r, first); err != nil || string(first) != "89" {
		t.Fatalf("%q, %v", first, err)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("more"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	close(ended)
	rest, err := io.ReadAll(r)
	if err != nil || string(rest) != "more" {
		t.Fatalf("%q, %v", rest, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	r2, err := files.Open(gone, files.Request{Dir: dir, Kind: files.Stream, Path: "web/local/a.txt", Offset: 14})
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	cancel()
	if _, err := r2.Read(first); err == nil {
		t.Fatal("a reader whose context ended reads on")
	}
	if err := os.Truncate(name, 3); err != nil {
		t.Fatal(err)
	}
	r3, err := files.Open(t.Context(), files.Request{Dir: dir, Kind: files.Stream, Path: "web/local/a.txt", Offset: 14})
	if err != nil {
		t.Fatal(err)
	}
	defer r3.Close()
	if b, err := io.ReadAll(r3); err != nil || len(b) != 0 {
		t.Fatalf("a file that was cut short: %q, %v", b, err)
	}
}

// FuzzOpen opens random paths: nothing outside the folder is ever read.
func FuzzOpen(f *testing.F) {
	f.Add("web/local/up", int64(0))
	f.Add("../outside", int64(3))
	f.Add("web/local/in/../../web/secrets/key", int64(0))
	dir := mustTree(f)
	f.Fuzz(func(t *testing.T, path string, offset int64) {
		got, err := read(t.Context(), files.Request{Dir: dir, Kind: files.Read, Path: path, Offset: offset})
		if err == nil && (strings.Contains("not yours", got) || strings.Contains("hush", got)) && got != "" {
			t.Errorf("%q gives %q", path, got)
		}
	})
}
