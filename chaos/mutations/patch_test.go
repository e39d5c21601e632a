// Package mutations reads the mistakes that the harness has to find. Each one is a file
// NAME.patch in this folder. It is applied in memory and built with go build -overlay, so that
// production code knows nothing of it and no file of the repository changes.
//
// A patch is a unified diff without line numbers: the lines of a hunk that the source has,
// context and removed ones, must occur in it exactly once. Before the diff stand
//
//	# A sentence that says what goes wrong.
//	invariant: SLUG
//	no invariant: WHY
//	killed by: FOLDER TEST
//	killed by: FOLDER TEST: TEXT
//
// An invariant is one of chaos/check. It has to be broken where the scenario NAME.yaml, also in
// this folder, is played with the mistake. A patch without one says why no run of the harness
// shows the mistake. A test is an ordinary one, or a subtest, that has to fail with the mistake
// and, where there is a TEXT, to say that.
//
// The tests of this package check that each patch applies. With -args -play they build and
// run each one (make mutations).
package mutations_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutation is one mistake.
type mutation struct {
	Name      string
	Invariant string // slug of the invariant that it breaks in its scenario; "": it has no scenario
	// NoInvariant says why it has none.
	NoInvariant string
	KilledBy    []killer // tests that fail with it
	hunks       []hunk
}

// killer is a test that has to fail.
type killer struct {
	Folder string // of its package, from the root of the module
	Name   string // of the test, or TEST/SUBTEST
	Text   string // that its output has to contain; may be empty
}

// hunk replaces lines of a file.
type hunk struct{ file, before, after string }

// readPatches reads the patches of a folder, in the order of their names.
func readPatches(folder string) ([]mutation, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.patch"))
	if err != nil {
		return nil, fmt.Errorf("find the patches in %s: %w", folder, err)
	}
	var all []mutation
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the patch: %w", err)
		}
		m, err := parsePatch(strings.TrimSuffix(filepath.Base(path), ".patch"), string(text))
		if err != nil {
			return nil, fmt.Errorf("read the patch %s: %w", path, err)
		}
		all = append(all, m)
	}
	return all, nil
}

func parsePatch(name, text string) (mutation, error) {
	m := mutation{Name: name}
	file := "" // "": still before the diff
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		current := len(m.hunks) - 1
		switch {
		case strings.HasPrefix(line, "--- a/"):
			file = strings.TrimSpace(strings.TrimPrefix(line, "--- a/"))
		case strings.HasPrefix(line, "+++ b/"):
		case file != "" && strings.HasPrefix(line, "@@"):
			m.hunks = append(m.hunks, hunk{file: file})
		case file != "" && current >= 0 && strings.ContainsAny(line[:1], " -+"):
			if line[0] != '+' {
				m.hunks[current].before += line[1:]
			}
			if line[0] != '-' {
				m.hunks[current].after += line[1:]
			}
		case file == "" && line[0] == '#':
		case file == "" && word == "invariant":
			m.Invariant = rest
		case file == "" && word == "no invariant":
			m.NoInvariant = rest
		case file == "" && word == "killed by":
			test, said, _ := strings.Cut(rest, ": ")
			folder, test, _ := strings.Cut(test, " ")
			m.KilledBy = append(m.KilledBy, killer{Folder: folder, Name: test, Text: said})
		default:
			return m, fmt.Errorf("the line %q belongs neither to its head nor to a diff", line)
		}
	}
	if len(m.hunks) == 0 {
		return m, errors.New("it has no diff")
	}
	return m, nil
}

// applyTo returns the files below root that the mistake changes, by their paths from there.
func (m mutation) applyTo(root string) (map[string][]byte, error) {
	changed := map[string][]byte{}
	for _, h := range m.hunks {
		if changed[h.file] == nil {
			source, err := os.ReadFile(filepath.Join(root, h.file))
			if err != nil {
				return nil, fmt.Errorf("apply %s.patch: %w", m.Name, err)
			}
			changed[h.file] = append([]byte("\n"), source...) // each line begins after a line end
		}
		source := string(changed[h.file])
		if n := strings.Count(source, "\n"+h.before); n != 1 {
			return nil, fmt.Errorf("apply %s.patch: %s has these lines %d times:\n%s", m.Name, h.file, n, h.before)
		}
		changed[h.file] = []byte(strings.Replace(source, "\n"+h.before, "\n"+h.after, 1))
	}
	for file, source := range changed {
		changed[file] = source[1:]
	}
	return changed, nil
}
