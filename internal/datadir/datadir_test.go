package datadir_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
	"skerry/internal/datadir"
)

var edgeKind = datadir.Kind{Owner: "an edge", Version: 1}

func mustOpen(t testing.TB, path string) *datadir.Dir {
	t.Helper()
	d, err := datadir.Open(path, edgeKind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestOneProcessAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "data")
	d := mustOpen(t, path)
	synctest.Test(t, func(t *testing.T) { // where patience costs nothing
		if _, err := datadir.Open(path, edgeKind); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Fatalf("a second time: %v", err)
		}
	})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, path)
	if info, err := os.Stat(d.File()); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the directory: %v, %v", info, err)
	}
}

// A child that was forked when an agent was killed has its lock for a moment.
func TestALockThatIsLetGoSoon(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := mustOpen(t, path)
		var released errgroup.Group
		released.Go(func() error {
			time.Sleep(time.Second)
			return d.Close()
		})
		next, err := datadir.Open(path, edgeKind)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		if err := released.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestVersions(t *testing.T) {
	for text, code := range map[string]fleet.Code{
		"1\n": "", "": "", "0": "", "2\n": fleet.CodeVersion, "99": fleet.CodeVersion, "letters": fleet.CodeInvalid,
	} {
		path := t.TempDir()
		if err := os.WriteFile(filepath.Join(path, "version"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := datadir.Open(path, edgeKind)
		if fleet.CodeOf(err) != code {
			t.Errorf("version %q: %v", text, err)
		}
		if err == nil {
			d.Close()
		}
	}
}

func TestDirectoryThatIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Open(filepath.Join(path, "data"), edgeKind); fleet.CodeOf(err) != fleet.CodeForbidden {
		t.Fatalf("open: %v", err)
	}
}

func TestFilesAreReplacedWhole(t *testing.T) {
	d := mustOpen(t, t.TempDir())
	if _, ok, err := d.Read("x/y"); ok || err != nil {
		t.Fatalf("a file that is not there: %v, %v", ok, err)
	}
	for _, text := range []string{"one", "two"} {
		if err := d.Write("x/y", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if b, ok, err := d.Read("x/y"); !ok || err != nil || string(b) != text {
			t.Fatalf("read %q, %v, %v", b, ok, err)
		}
	}
	left, err := os.ReadDir(d.File("x"))
	if err != nil || len(left) != 1 {
		t.Fatalf("left in the folder: %v, %v", left, err)
	}
}
