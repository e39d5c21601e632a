package tasklog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry/edge/tasklog"
	"skerry/fleet"
)

func mustWrite(t testing.TB, dir, name, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, req tasklog.Request) *tasklog.Reader {
	t.Helper()
	r, err := tasklog.Open(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestReadAcrossRotatedFiles(t *testing.T) {
	dir := t.TempDir()
	for i, text := range map[int]string{9: "first ", 10: "second ", 11: "third"} {
		mustWrite(t, dir, fmt.Sprintf("web.stdout.%d", i), text)
	}
	mustWrite(t, dir, "web.stdout.11.gz", "not a log")
	mustWrite(t, dir, "web.stdout.011", "not a log")
	mustWrite(t, dir, "web.stderr.0", "errors")
	for _, c := range []struct {
		stream, origin string
		offset         int64
		want           string
	}{
		{"", "", 0, "first second third"},
		{"stdout", "start", 6, "second third"},
		{"stdout", "start", 8, "cond third"},
		{"stdout", "start", 100, ""},
		{"stdout", "end", 0, ""},
		{"stdout", "end", 5, "third"},
		{"stdout", "end", 7, "d third"},
		{"stdout", "end", 100, "first second third"},
		{"stderr", "", 0, "errors"},
	} {
		r := mustOpen(t, tasklog.Request{Dir: dir, Task: "web", Stream: c.stream, Origin: c.origin, Offset: c.offset})
		got, err := io.ReadAll(r)
		if err != nil || string(got) != c.want {
			t.Errorf("%s from %d of %s: %q, %v; want %q", c.stream, c.offset, c.origin, got, err, c.want)
		}
	}
	r := mustOpen(t, tasklog.Request{Dir: filepath.Join(dir, "gone"), Task: "web"})
	if got, err := io.ReadAll(r); len(got) != 0 || err != nil {
		t.Errorf("of nothing: %q, %v", got, err)
	}
}

// TestPosition reads from within a file, follows across a rotation, and continues after the file was
// removed: each read has the right file and offset.
func TestPosition(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, "web.stdout.4", "0123456789")
	var ended atomic.Bool
	r := mustOpen(t, tasklog.Request{Dir: dir, Task: "web", Offset: 3, Follow: true, Ended: ended.Load})
	buf := make([]byte, 4)
	read := func(want string, file int, end int64) {
		t.Helper()
		n, err := r.Read(buf)
		number, at := r.Position()
		if err != nil || string(buf[:n]) != want || number != file || at != end {
			t.Fatalf("read %q, %v, up to %d of file %d; want %q up to %d of file %d", buf[:n], err, at, number, want, end, file)
		}
	}
	read("3456", 4, 7)
	mustWrite(t, dir, "web.stdout.4", "ab")
	mustWrite(t, dir, "web.stdout.5", "xyz")
	read("789a", 4, 11)
	read("b", 4, 12)
	read("xyz", 5, 3)
	if err := os.Remove(filepath.Join(dir, "web.stdout.5")); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, dir, "web.stdout.8", "!")
	ended.Store(true)
	read("!", 8, 1)
}

func TestFollow(t *testing.T) {
	dir := t.TempDir()
	var ended atomic.Bool
	r := mustOpen(t, tasklog.Request{Dir: dir, Task: "web", Follow: true, Ended: ended.Load})
	got := make(chan string)
	go func() {
		defer close(got)
		buf := make([]byte, 64)
		for {
			n, err := r.Read(buf)
			if err != nil {
				return
			}
			got <- string(buf[:n])
		}
	}()
	for i, text := range []string{"one", "two", "three"} {
		mustWrite(t, dir, fmt.Sprintf("web.stdout.%d", i), text)
		if g := <-got; g != text {
			t.Fatalf("followed %q, want %q", g, text)
		}
	}
	mustWrite(t, dir, "web.stdout.2", " last")
	ended.Store(true)
	var rest strings.Builder
	for g := range got {
		rest.WriteString(g)
	}
	if rest.String() != " last" {
		t.Fatalf("at the end: %q", rest.String())
	}
}

func TestFollowerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	r, err := tasklog.Open(ctx, tasklog.Request{Dir: t.TempDir(), Task: "web", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("read: %v", err)
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	for _, req := range []tasklog.Request{
		{}, {Task: "../x"}, {Task: "web", Stream: "stdin"}, {Task: "web", Origin: "middle"}, {Task: "web", Offset: -1},
	} {
		req.Dir = t.TempDir()
		if _, err := tasklog.Open(context.Background(), req); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%+v: %v", req, err)
		}
	}
}
