package planted_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/chaos/schedule"
	"skerry/planted"
)

// Every bug has a scenario, and every scenario can be played.
func TestEveryBugHasAScenario(t *testing.T) {
	paths, err := filepath.Glob("*.txt")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]bool{}
	for _, path := range paths {
		of[strings.TrimSuffix(path, ".txt")] = true
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := schedule.Parse(path, text); err != nil {
			t.Error(err)
		}
	}
	for _, e := range planted.Catalogue() {
		if !of[string(e.Bug)] {
			t.Errorf("%s has no scenario", e.Bug)
		}
		delete(of, string(e.Bug))
	}
	for name := range of {
		t.Errorf("%s.txt is of no bug", name)
	}
}
