package mutations_test

import (
	"flag"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skerry/chaos/check"
	"skerry/chaos/schedule"
)

const root = "../.." // of the module, from here

var (
	play    = flag.Bool("play", false, "build each mutation, play its scenario and run the tests that have to fail")
	replays = flag.Int("replays", 0, "play a seed that shows a mutation so many times more: how often does it show it again?")
)

// TestMutations checks that every patch applies and names the invariant or test that finds it. With -play each
// mutation has to be found.
func TestMutations(t *testing.T) {
	all := mustRead(t)
	reliability := mustReadFile(t, root+"/docs/reliability.md")
	for _, path := range mustGlob(t, "*.yaml") {
		if !slices.ContainsFunc(all, func(m mutation) bool { return m.Invariant != "" && m.Name+".yaml" == path }) {
			t.Errorf("%s is the scenario of no patch that names an invariant", path)
		}
	}
	sound := "" // the program without a mistake
	if *play {
		sound = mustBuild(t, t.TempDir(), "sound")
	}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			changed, err := m.applyTo(root)
			if err != nil {
				t.Fatal(err)
			}
			for file, source := range changed {
				if _, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution); err != nil {
					t.Error(err)
				}
			}
			if len(m.KilledBy) == 0 {
				t.Error("the patch names no test that fails with it")
			}
			if (m.Invariant == "") == (m.NoInvariant == "") {
				t.Error("the patch names an invariant, or says why it has none")
			}
			for _, test := range m.KilledBy {
				requireTest(t, test)
			}
			if m.Invariant != "" {
				requireScenario(t, m.Name+".yaml")
				if _, ok := check.InvariantNamed(m.Invariant); !ok {
					t.Errorf("there is no invariant %q", m.Invariant)
				}
				if !strings.Contains(reliability, "| "+m.Name+" | "+m.Invariant+" |") {
					t.Errorf("docs/reliability.md does not say that %s finds it", m.Invariant)
				}
			}
			if *play && !t.Failed() {
				findMutation(t, m, changed, sound)
			}
		})
	}
}

// requireTest wants the test of that name to exist.
func requireTest(t *testing.T, test killer) {
	t.Helper()
	name, _, _ := strings.Cut(test.Name, "/")
	function := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`)
	for _, path := range mustGlob(t, filepath.Join(root, test.Folder, "*_test.go")) {
		if function.MatchString(mustReadFile(t, path)) {
			return
		}
	}
	t.Errorf("%s has no test %s", test.Folder, name)
}

func requireScenario(t *testing.T, path string) {
	t.Helper()
	if _, err := schedule.Parse(path, []byte(mustReadFile(t, path))); err != nil {
		t.Error(err)
	}
}

// A patch that no longer fits is refused by its name.
func TestAPatchThatDoesNotApplyIsNamed(t *testing.T) {
	folder := t.TempDir()
	source := "package x\n\nvar a = 1\nvar b = 1\n"
	if err := os.WriteFile(filepath.Join(folder, "x.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ patch, want, err string }{
		{"# One.\ninvariant: settled\nkilled by: x TestX/y: no\n--- a/x.go\n+++ b/x.go\n@@\n var a = 1\n+var c = 1\n@@\n-var b = 1\n", "package x\n\nvar a = 1\nvar c = 1\n", ""},
		{"--- a/x.go\n+++ b/x.go\n@@\n-var a = 2\n+var a = 3\n", "", "apply p.patch: x.go has these lines 0 times:\nvar a = 2\n"},
		{"--- a/y.go\n+++ b/y.go\n@@\n-var a = 2\n", "", "apply p.patch: open "},
		{"# Nothing.\n", "", "p.patch: it has no diff"},
		{"killed: x TestX\n", "", `the line "killed: x TestX\n" belongs neither`},
	} {
		if err := os.WriteFile(filepath.Join(folder, "p.patch"), []byte(c.patch), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := readPatches(folder)
		var changed map[string][]byte
		if err == nil {
			changed, err = all[0].applyTo(folder)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) || c.err == "" && err != nil {
			t.Errorf("%q: %v, want %q", c.patch, err, c.err)
		}
		if got := string(changed["x.go"]); got != c.want {
			t.Errorf("%q makes %q, want %q", c.patch, got, c.want)
		}
		if want := (killer{Folder: "x", Name: "TestX/y", Text: "no"}); c.want != "" && (all[0].Invariant != "settled" || all[0].KilledBy[0] != want) {
			t.Errorf("%q: the head is %+v", c.patch, all[0])
		}
	}
}

func mustRead(tb testing.TB) []mutation {
	tb.Helper()
	all, err := readPatches(".")
	if err != nil {
		tb.Fatal(err)
	}
	if len(all) < 56 {
		tb.Errorf("there are %d patches", len(all))
	}
	return all
}

func mustReadFile(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func mustGlob(tb testing.TB, pattern string) []string {
	tb.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		tb.Fatal(err)
	}
	return paths
}
