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

// TestStructure counts mirror types, interfaces over the state, and methods that no interface asks for.
func TestStructure(t *testing.T) {
	s, err := readSource(mustWriteModule(t, map[string]string{
		"hub/a/a.go": "package a\n\ntype Row struct {\n\tID string `cbor:\"1\"`\n\tAt b.Time\n\tN, M []int\n}\n\ntype State interface{ View() int; Watch() }\n\ntype Applier interface{ Apply() error }\n",
		"hub/b/b.go": "package b\n\ntype Line struct {\n\tID string\n\tAt Time\n\tN, M []int\n}\n\ntype other struct{ ID string; At Time; N []int }\n\ntype wire struct {\n\tID string `cbor:\"1,keyasint\"`\n\tAt Time `cbor:\"2,keyasint\"`\n\tN, M []int\n}\n",
		"hub/b/adapters.go": "package b\n\ntype step interface{ playStep() }\n\ntype (\n\ts1 struct{}\n\ts2 struct{}\n\ts3 struct{}\n\ts4 struct{}\n\ts5 struct{}\n)\n\n" +
			"func (s1) playStep() {}\nfunc (s2) playStep() {}\nfunc (s3) playStep() {}\nfunc (s4) playStep() {}\nfunc (s5) playStep() {}\n" +
			"func (s1) takeAll() {}\nfunc (s2) takeAll() {}\nfunc (s3) takeAll() {}\nfunc (s4) takeAll() {}\nfunc (s5) takeAll() {}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.mirrorTypes(), "; "); got != "hub/a.Row = hub/b.Line" {
		t.Errorf("mirror types: %s", got)
	}
	views, appliers := s.stateInterfaces()
	if strings.Join(views, " ") != "hub/a.State" || strings.Join(appliers, " ") != "hub/a.Applier" {
		t.Errorf("interfaces over the state: %v, with Apply: %v", views, appliers)
	}
	receivers := s.receiversOf()
	if len(receivers["takeAll"]) != 5 || receivers["playStep"] != nil {
		t.Errorf("methods on many types: %v", receivers)
	}
}
