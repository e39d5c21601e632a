package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/fleet"
)

// A file is read up to its bound, and refused beyond it, not cut there.
func TestSizeOfASpec(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool.hcl")
	for size, fits := range map[int]bool{maxSpec: true, maxSpec + 1: false} {
		text := strings.Repeat("#", size)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path, "-"} {
			src, err := Read(strings.NewReader(text), name)
			if fits != (err == nil) || fits && len(src) != size || !fits && !strings.Contains(err.Error(), "has more than") {
				t.Errorf("%s of %d bytes: %d, %v", name, size, len(src), err)
			}
		}
	}
	if _, err := Read(nil, path+".none"); fleet.CodeOf(err) != fleet.CodeNotFound {
		t.Errorf("no file: %v", err)
	}
}
