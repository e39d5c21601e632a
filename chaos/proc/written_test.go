package proc

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestParseDeviceStat(t *testing.T) {
	// Fields: reads, merged, sectors read, ms, writes, merged, sectors written, ms, in flight, ms, ms.
	n, err := parseDeviceStat("   10  0  80  1   30  2   1000   5   0   6   7\n")
	if err != nil || n != 1000*512 {
		t.Errorf("parsed %d, %v", n, err)
	}
	for _, bad := range []string{"", "1 2 3 4 5 6", "1 2 3 4 5 6 x 8"} {
		if n, err := parseDeviceStat(bad); err == nil {
			t.Errorf("parsed %d of %q", n, bad)
		}
	}
}

// TestWritten checks that a process that writes and syncs a file has written at least its size.
func TestWritten(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux counts what a process writes")
	}
	before, err := Written(os.Getpid())
	if err != nil {
		t.Skipf("this kernel does not count what a process writes: %v", err)
	}
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	after, err := Written(os.Getpid())
	if err != nil || after < before {
		t.Errorf("written %d before and %d after, %v", before, after, err)
	}
}
