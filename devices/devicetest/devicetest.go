// Package devicetest is the conformance suite of devices.Finder. The tests of a finder call Run with a
// function that makes one on a machine with such hardware, real or simulated.
package devicetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
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
	t.Run("heeds its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if found, err := newFinder(t).Find(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("found %d, %v, want that it was canceled", len(found), err)
		}
	})
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
