package tmpfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"skerry/internal/tmpfs"
)

// mustAttach mounts a file system in memory of 1 MiB on a new folder, and skips the test where nothing can be mounted.
func mustAttach(t *testing.T, dir, source string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := tmpfs.Attach(dir, source, 1)
	if errors.Is(err, unix.EPERM) {
		t.Skipf("no right to mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// TestAttach mounts, looks at the limits, finds the mount again, and detaches it with its files.
func TestAttach(t *testing.T) {
	base := filepath.Join(t.TempDir(), "with a blank")
	dir := filepath.Join(base, "secrets")
	mustAttach(t, dir, "test:boot 1")
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the root has mode %v, %v", info, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC || uint64(st.Bsize)*st.Blocks != 1<<20 {
		t.Errorf("it is of type %x with %d blocks, %v", st.Type, st.Blocks, err)
	}
	const forbidden = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	if st.Flags&forbidden != forbidden {
		t.Errorf("flags %x lack nosuid, nodev or noexec", st.Flags)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("2 MiB were written into 1 MiB: %v", err)
	}
	seen, err := os.Open(dir) // another program that still sees it
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	found, err := tmpfs.Below(base, "test:")
	if err != nil || len(found) != 1 || found[0] != (tmpfs.Mount{Dir: dir, Source: "test:boot 1"}) {
		t.Fatalf("found %v, %v", found, err)
	}
	for _, other := range []struct{ dir, prefix string }{{base, "other:"}, {base + "x", "test:"}, {dir + "x", "test:"}} {
		if found, err := tmpfs.Below(other.dir, other.prefix); err != nil || len(found) > 0 {
			t.Errorf("below %v there is %v, %v", other, found, err)
		}
	}
	if err := found[0].Detach(); err != nil {
		t.Fatal(err)
	}
	if names, err := seen.Readdirnames(-1); err != nil || len(names) > 0 {
		t.Errorf("the files %v are left, %v", names, err)
	}
	if found, err := tmpfs.Below(base, "test:"); err != nil || len(found) > 0 {
		t.Errorf("still mounted: %v, %v", found, err)
	}
	if err := found[0].Detach(); err != nil {
		t.Errorf("detach again: %v", err)
	}
}

// TestAttachRefusesLinks refuses a link that leads to another folder.
func TestAttachRefusesLinks(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(target, 0o700), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if err := tmpfs.Attach(link, "test:", 1); err == nil || !strings.Contains(err.Error(), link) {
		t.Errorf("mounted on a link: %v", err)
	}
	if found, err := tmpfs.Below(dir, ""); err != nil || len(found) > 0 {
		t.Errorf("mounted: %v, %v", found, err)
	}
}

// TestDetachBelow detaches several mounts of one folder and below it, through a link, and no others.
func TestDetachBelow(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "edge-1"), filepath.Join(dir, "edge-10")
	mustAttach(t, filepath.Join(one, "a"), "test:")
	mustAttach(t, filepath.Join(one, "a"), "test:")
	mustAttach(t, filepath.Join(one, "b"), "test:")
	mustAttach(t, filepath.Join(one, "c"), "other:")
	mustAttach(t, filepath.Join(two, "a"), "test:")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(one, link); err != nil {
		t.Fatal(err)
	}
	if err := tmpfs.DetachBelow(link, "test:"); err != nil {
		t.Fatal(err)
	}
	left, err := tmpfs.Below(dir, "")
	if err != nil || len(left) != 2 || left[0].Source != "other:" || left[1].Dir != filepath.Join(two, "a") {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := tmpfs.DetachBelow(filepath.Join(dir, "missing"), ""); err != nil {
		t.Errorf("a missing folder: %v", err)
	}
}
