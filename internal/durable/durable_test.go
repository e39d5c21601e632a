package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"skerry/internal/durable"
)

// mustHold checks that a folder holds one file or folder alone: nothing is left of an attempt.
func mustHold(t *testing.T, dir, name string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Name() != name {
		t.Errorf("the folder holds %v", list)
	}
}

type replacing func(path string, content []byte, mode fs.FileMode) error

func TestReplace(t *testing.T) { testReplace(t, durable.Replace) }
func TestSwap(t *testing.T)    { testReplace(t, durable.Swap) }

func testReplace(t *testing.T, replace replacing) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	for _, f := range []struct {
		content string
		mode    fs.FileMode
	}{{"the first, which is longer", 0o644}, {"the next", 0o600}, {"", 0o600}} {
		if err := replace(path, []byte(f.content), f.mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != f.content {
			t.Errorf("it holds %q, %v; want %q", got, err, f.content)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != f.mode && runtime.GOOS != "windows" {
			t.Errorf("its mode is %s, want %s", mode, f.mode)
		}
		mustHold(t, dir, "secret")
	}
}

func TestReplaceThatFails(t *testing.T) { testReplaceThatFails(t, durable.Replace) }
func TestSwapThatFails(t *testing.T)    { testReplaceThatFails(t, durable.Swap) }

func testReplaceThatFails(t *testing.T, replace replacing) {
	t.Helper()
	dir := t.TempDir()
	if err := replace(filepath.Join(dir, "no", "folder"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a folder that is not there: %v", err)
	}
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "by a folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replace(taken, []byte("x"), 0o600); err == nil {
		t.Error("it replaced a folder")
	}
	mustHold(t, dir, "taken")
}

func TestMakeFolders(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := durable.MakeFolders(filepath.Join(dir, "a", "b", "c"), 0o700); err != nil {
			t.Fatal(err)
		}
		mustHold(t, filepath.Join(dir, "a", "b"), "c")
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "file", "below")} {
		if err := durable.MakeFolders(path, 0o700); err == nil {
			t.Errorf("it made %s, where a file is", path)
		}
	}
}
