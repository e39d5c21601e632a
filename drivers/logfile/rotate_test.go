package logfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"skerry/drivers/logfile"
)

func TestRotatorContinues(t *testing.T) {
	dir := t.TempDir()
	w := &logfile.Rotator{Dir: dir, Prefix: "web.stdout", MaxFiles: 3, MaxBytes: 10}
	var all string
	for i := range 8 {
		line := fmt.Sprintf("line %d\n", i)
		mustWrite(t, w, line)
		all += line
	}
	mustClose(t, w)
	wantFiles(t, dir, map[string]string{"web.stdout.3": all[30:40], "web.stdout.4": all[40:50], "web.stdout.5": all[50:56]})

	// A rotator continues where the previous one of the task ended.
	w = &logfile.Rotator{Dir: dir, Prefix: "web.stdout", MaxFiles: 2, MaxBytes: 10}
	mustWrite(t, w, "again")
	mustClose(t, w)
	wantFiles(t, dir, map[string]string{"web.stdout.5": all[50:56] + "agai", "web.stdout.6": "n"})
}

// A full disk never blocks a task's output, and the lost bytes are counted.
func TestRotatorLosesAndCounts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	w := &logfile.Rotator{Dir: dir, Prefix: "web.stderr", MaxFiles: 2, MaxBytes: 100}
	mustWrite(t, w, "12345")
	mustWrite(t, w, "67")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, w, "and on\n")
	mustClose(t, w)
	wantFiles(t, dir, map[string]string{"web.stderr.0": "[7 bytes of output were lost: the disk was full]\nand on\n"})
}

func mustWrite(tb testing.TB, w interface{ Write([]byte) (int, error) }, s string) {
	tb.Helper()
	if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
		tb.Fatalf("Write: %d, %v", n, err)
	}
}

func mustClose(tb testing.TB, c interface{ Close() error }) {
	tb.Helper()
	if err := c.Close(); err != nil {
		tb.Fatal(err)
	}
}

func wantFiles(tb testing.TB, dir string, want map[string]string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			tb.Fatal(err)
		}
		if w, ok := want[e.Name()]; !ok || w != string(b) {
			tb.Errorf("%s: %q, want %q (%v)", e.Name(), b, w, ok)
		}
	}
	if len(entries) != len(want) {
		tb.Errorf("%d files, want %d", len(entries), len(want))
	}
}
