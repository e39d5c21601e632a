// Package devicetest is the conformance suite of devices.Finder. The tests of a finder call Run with a
// function that makes one on a machine with such hardware, real or simulated.
package devicetest

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"skerry/devices"
	"skerry/fleet"
)

// maxText bounds each text of a device, in bytes: the hub receives all of them.
const maxText = 256

// Run runs the suite. Each Finder that newFinder makes must find at least one device.
func Run(t *testing.T, newFinder func(tb testing.TB) devices.Finder) {
	t.Run("kind", func(t *testing.T) {
		f := newFinder(t)
		if f.Kind() == "" {
			t.Fatal("Kind is empty")
		}
		for _, d := range mustFind(t, f) {
			if d.Kind != f.Kind() {
				t.Errorf("device %s is of kind %q, want %q", d.ID, d.Kind, f.Kind())
			}
		}
	})
	t.Run("ids are unique and in order", func(t *testing.T) {
		found := mustFind(t, newFinder(t))
		for i, d := range found {
			if d.ID == "" {
				t.Errorf("number %d has no ID: %+v", i, d)
			}
			if i > 0 && found[i-1].ID >= d.ID {
				t.Errorf("%q does not come after %q", d.ID, found[i-1].ID)
			}
		}
	})
	t.Run("the same again", func(t *testing.T) {
		f := newFinder(t)
		first, kept := mustFind(t, f), mustFind(t, f)
		for i := range first { // the caller may change the result
			first[i].ID = "changed"
			clear(first[i].Attributes)
		}
		for name, again := range map[string][]fleet.Device{
			"the same finder": mustFind(t, f), "another one": mustFind(t, newFinder(t)),
		} {
			if !reflect.DeepEqual(kept, again) {
				t.Errorf("%s finds %+v, want %+v", name, again, kept)
			}
		}
	})
	t.Run("texts are fit to be shown", func(t *testing.T) {
		for _, d := range mustFind(t, newFinder(t)) {
			texts := []string{d.Vendor, d.Type, d.Name, d.ID}
			for k, v := range d.Attributes {
				texts = append(texts, k, v)
			}
			if i := slices.IndexFunc(texts, isUnprintable); i >= 0 {
				t.Errorf("device %s says %q", d.ID, texts[i])
			}
		}
	})
	t.Run("reserves what is there", func(t *testing.T) { reserve(t, newFinder(t)) })
	t.Run("heeds its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if found, err := newFinder(t).Find(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("found %d, %v, want that it was canceled", len(found), err)
		}
		if r, err := newFinder(t).Reserve(ctx, []string{"x"}); !errors.Is(err, context.Canceled) {
			t.Errorf("reserved %+v, %v, want that it was canceled", r, err)
		}
	})
}

// RunOnMachine checks a Finder of this very machine, which may have no such device. Two readings are alike, each device can be
// reserved, and what a task gets of it are device nodes of this machine. A device whose driver or node is missing, as in a
// container, may be named in an error, and in no other one.
func RunOnMachine(t *testing.T, f devices.Finder) {
	found, err := f.Find(t.Context())
	if err != nil && !strings.Contains(err.Error(), "has no driver: load ") {
		t.Errorf("Find: %v", err)
	}
	again, err := f.Find(t.Context())
	if !reflect.DeepEqual(found, again) {
		t.Errorf("the first reading found %+v, the second %+v, %v", found, again, err)
	}
	t.Logf("this machine has %d devices of the kind %s", len(found), f.Kind())
	seen := map[string]bool{}
	for _, d := range found {
		if d.ID == "" || seen[d.ID] || d.Kind != f.Kind() || d.Vendor == "" || d.Type == "" || d.Name == "" {
			t.Errorf("a device without a kind, vendor, type, name or an ID of its own: %+v", d)
		}
		seen[d.ID] = true
		r, err := f.Reserve(t.Context(), []string{d.ID})
		if err != nil && !errors.Is(err, devices.ErrUnplugged) || err == nil && len(r.Env) == 0 {
			t.Errorf("Reserve(%q): %+v, %v", d.ID, r, err)
		}
		for _, n := range r.Nodes {
			if info, err := os.Stat(n.HostPath); err != nil || info.Mode()&os.ModeDevice == 0 {
				t.Errorf("%s has %+v, which is no device node: %v", d.ID, n, err)
			}
		}
	}
	if _, err := f.Reserve(t.Context(), []string{"no such device"}); !errors.Is(err, devices.ErrUnplugged) {
		t.Errorf("Reserve of what is not there: %v, want %v", err, devices.ErrUnplugged)
	}
}

// reserve requires that all found devices can be reserved, each time with the same result, and that others are
// devices.ErrUnplugged.
func reserve(t *testing.T, f devices.Finder) {
	var ids []string
	for _, d := range mustFind(t, f) {
		ids = append(ids, d.ID)
	}
	r, err := f.Reserve(t.Context(), ids)
	if err != nil {
		t.Fatalf("Reserve(%q): %v", ids, err)
	}
	if len(r.Nodes) == 0 || len(r.Env) == 0 {
		t.Errorf("Reserve(%q): %+v, want device nodes and variables", ids, r)
	}
	for _, n := range r.Nodes {
		if !filepath.IsAbs(n.HostPath) || !strings.HasPrefix(n.TaskPath, "/dev/") || n.Permissions == "" {
			t.Errorf("device node %+v, want absolute paths and permissions", n)
		}
		if _, err := os.Stat(n.HostPath); err != nil {
			t.Errorf("device node %+v: %v", n, err)
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(r.Env)), func(v string) bool { return v == strings.Join(ids, ",") }) {
		t.Errorf("variables %v, want one with the ids %q", r.Env, ids)
	}
	again, err := f.Reserve(t.Context(), ids)
	if err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("again: %+v, %v, want %+v", again, err, r)
	}
	if _, err := f.Reserve(t.Context(), []string{ids[0], "no such device"}); !errors.Is(err, devices.ErrUnplugged) || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("Reserve of what is not there: %v, want %v with its id", err, devices.ErrUnplugged)
	}
	if r, err := f.Reserve(t.Context(), nil); err != nil || len(r.Nodes)+len(r.Mounts)+len(r.Env) > 0 {
		t.Errorf("Reserve of nothing: %+v, %v, want nothing", r, err)
	}
}

// MustTree makes files and symbolic links below a new folder, and returns it. A content that begins with "-> "
// is the target of a link.
func MustTree(tb testing.TB, files map[string]string) string {
	tb.Helper()
	root := tb.TempDir()
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			if target, isLink := strings.CutPrefix(content, "-> "); isLink {
				err = os.Symlink(target, path)
			} else {
				err = os.WriteFile(path, []byte(content), 0o644)
			}
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return root
}

// mustFind returns the devices that f finds. Without one, or after an error, it fails the test.
func mustFind(tb testing.TB, f devices.Finder) []fleet.Device {
	tb.Helper()
	found, err := f.Find(tb.Context())
	if err != nil {
		tb.Fatalf("Find: %v", err)
	}
	if len(found) == 0 {
		tb.Fatal("Find: nothing")
	}
	return found
}

// isUnprintable reports whether a text is too long, or has bytes that cannot be printed.
func isUnprintable(s string) bool {
	if len(s) > maxText || !utf8.ValidString(s) {
		return true
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return true
		}
	}
	return false
}
