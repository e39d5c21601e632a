package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func mustWriteModule(tb testing.TB, files map[string]string) string {
	tb.Helper()
	root := tb.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return root
}

var toy = map[string]string{
	"a/a.go": `package a

import (
	"fmt"

	"skerry/b"
)

// T is a type.
type T[K any] struct{}

type Bare struct{}

// one
// two
// three
// four
func (t *T[K]) see() error        { return nil }
func (t *T[K]) applyRows() error  { return fmt.Errorf("apply rows: %w", b.Err) }
func (T[K]) Close()               {}
func wrap(err error) error        { return fmt.Errorf("wrap: %v", err) }
func wrapAgain(readErr error) error { return fmt.Errorf("wrap: %w", readErr) }
`,
	"a/a_test.go":          "package a\n\nfunc (t *T[K]) tested() {}\n",
	"b/b.go":               "package b\n\nimport _ \"skerry/c\"\n\n// Err is an error.\nvar Err error\n",
	"c/c.go":               "package c\n",
	"c/testdata/broken.go": "this is no Go",
}

func TestFigures(t *testing.T) {
	s, err := readSource(mustWriteModule(t, toy))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.packageFigures()["a"], (figures{oneWordMethods: 1, undocumented: 2, longComments: 1}); got != want {
		t.Errorf("figures of a: %+v, want %+v", got, want)
	}
	var out bytes.Buffer
	if err := s.writeReport(&out); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"one-word name 1 of 2 (50 %)", "names 6.0", "import depth 2", "needs 1.0", "with a comment 2 of 4 (50 %)", "with %w 1 of 2 (50 %)",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the report does not say %q: %s", want, said)
		}
	}
}

func TestCeilingsOnlyGoDown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ceilings.txt")
	if err := recordCeilings(path, map[string]figures{"a": {2, 5, 0}, "gone": {1, 1, 1}}); err != nil {
		t.Fatal(err)
	}
	now := map[string]figures{"a": {3, 4, 0}, "new": {}}
	err := checkCeilings(path, now)
	if err == nil || err.Error() != "a: 3 unexported methods with a one-word name, at most 2 are allowed" {
		t.Errorf("one above its ceiling: %v", err)
	}
	if err := recordCeilings(path, now); err != nil {
		t.Fatal(err)
	}
	ceilings, err := readCeilings(path)
	if err != nil || len(ceilings) != 1 || ceilings["a"] != (figures{2, 4, 0}) {
		t.Errorf("recorded %v, %v", ceilings, err)
	}
	if err := checkCeilings(path, map[string]figures{"new": {oneWordMethods: 1}}); err == nil {
		t.Error("a new package may have what no old one has")
	}
}

func TestSubjects(t *testing.T) {
	for subject, isRight := range map[string]bool{
		"hub/state: count refused plans in one place": true, "edge, hub/state: test the end of a stream": true,
		"Merge things": false, "hub:": false, "hub: " + strings.Repeat("x", maxSubject): false,
	} {
		if err := checkSubjects([]string{subject}); (err == nil) != isRight {
			t.Errorf("%q: %v", subject, err)
		}
	}
}
