package virtual

import (
	"os"
	"path/filepath"
	"testing"
)

// The segments of a Raft log come and go with the size of its entries. Everything else that
// is open counts, a segment that was deleted and never closed above all.
func TestOpenFilesLeaveOutRaftSegments(t *testing.T) {
	folder := t.TempDir()
	for descriptor, file := range map[string]string{
		"1": "/data/hub-1/raft/log/00000001-00000001.wal",
		"2": "/data/hub-1/raft/log/00000002-00000041.wal (deleted)",
		"3": "/data/hub-1/raft/log/wal-meta.db",
		"4": "/data/edge-1/edge.db-wal",
		"5": "socket:[4711]",
	} {
		if err := os.Symlink(file, filepath.Join(folder, descriptor)); err != nil {
			t.Fatal(err)
		}
	}
	if n := openFiles(folder); n != 4 {
		t.Errorf("%d files are open, want 4: all but the segment", n)
	}
	if n := openFiles(filepath.Join(folder, "none")); n != 0 {
		t.Errorf("%d files are open where the system does not tell, want 0", n)
	}
}
