package logfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/drivers/logfile"
)

// TestRotator writes more than the files may hold, and counts the bytes written since a position.
func TestRotator(t *testing.T) {
	dir := t.TempDir()
	r := &logfile.Rotator{Dir: dir, Prefix: "web.stdout", MaxFiles: 2, MaxBytes: 10}
	if number, size := r.Position(); number != 0 || size != 0 {
		t.Errorf("position %d, %d before the first byte", number, size)
	}
	write := func(s string) {
		t.Helper()
		if n, err := r.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
	}
	write("0123456")
	number, size := r.Position()
	write("789abcdefghij")
	if got := r.BytesSince(number, size); got != 13 {
		t.Errorf("%d bytes since file %d, size %d; want 13", got, number, size)
	}
	if got := mustRead(t, dir); got != "0123456789,abcdefghij" {
		t.Errorf("files %q", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := &logfile.Rotator{Dir: dir, Prefix: "web.stdout", MaxFiles: 2, MaxBytes: 10}
	if number, size := again.Position(); number != 1 || size != 10 {
		t.Errorf("position %d, %d after a restart", number, size)
	}
	r = again
	write("xyz")
	if got := mustRead(t, dir); got != "abcdefghij,xyz" {
		t.Errorf("files %q", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// mustRead returns the contents of the files in order.
func mustRead(tb testing.TB, dir string) string {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "web.stdout.*"))
	if err != nil {
		tb.Fatal(err)
	}
	var parts []string
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			tb.Fatal(err)
		}
		parts = append(parts, string(b))
	}
	return strings.Join(parts, ",")
}
