package durable_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"skerry/internal/durable"
)

// The size of a disk is its free and its used blocks: those that are reserved for others count as neither.
func TestFreeSpace(t *testing.T) {
	dir := t.TempDir()
	for range 1000 { // others use the disk too
		var before, after unix.Statfs_t
		if err := unix.Statfs(dir, &before); err != nil {
			t.Fatal(err)
		}
		free, total, err := durable.FreeSpace(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Statfs(dir, &after); err != nil {
			t.Fatal(err)
		}
		if before.Bfree != after.Bfree || before.Bavail != after.Bavail {
			continue
		}
		if used := int64(after.Blocks-after.Bfree) * int64(after.Bsize); total-free != used || free <= 0 {
			t.Errorf("%d of %d bytes are free, want %d in use", free, total, used)
		}
		return
	}
	t.Fatal("the disk's use changed in each of 1000 tries")
}
