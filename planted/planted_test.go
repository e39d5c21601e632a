package planted_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"skerry/chaos/check"
	"skerry/planted"
)

const module = ".." // where the module's packages are, from here

// Every bug has an invariant that there is, a line in the package's table and in the
// documentation's, a place in production code, and a test in the same package that shows
// that it does harm.
func TestEveryBugIsAccountedFor(t *testing.T) {
	doc, told := mustRead(t, "doc.go"), mustRead(t, "../docs/reliability.md")
	places := mustFind(t, `planted\.On\(planted\.(\w+)\)`, func(file string) bool { return !strings.HasSuffix(file, "_test.go") })
	shown := mustFind(t, `planted\.(\w+)`, func(file string) bool { return file == "planted_test.go" })
	constants := mustReadConstants(t)
	invariants := map[planted.Bug]string{}
	for _, e := range planted.Catalogue() {
		if invariants[e.Bug] != "" {
			t.Errorf("%s is in the catalogue twice", e.Bug)
		}
		invariants[e.Bug] = e.Invariant
		if _, ok := check.InvariantNamed(e.Invariant); !ok {
			t.Errorf("%s: there is no invariant %q", e.Bug, e.Invariant)
		}
	}
	for name, bug := range constants {
		invariant := invariants[bug]
		if invariant == "" {
			t.Errorf("%s is not in the catalogue", bug)
		}
		line := regexp.MustCompile(`(?m)^//\t` + regexp.QuoteMeta(string(bug)) + ` +` + invariant + `$`)
		if !line.MatchString(doc) {
			t.Errorf("%s is not in the table of the package's comment, or with another invariant than %q", bug, invariant)
		}
		if !strings.Contains(told, "| "+string(bug)+" | "+invariant+" |") {
			t.Errorf("docs/reliability.md does not say of %s that %s names it", bug, invariant)
		}
		if places[name] == 0 {
			t.Errorf("planted.%s has no place in production code", name)
		}
		if shown[name] == 0 {
			t.Errorf("no planted_test.go shows that planted.%s does harm", name)
		}
		delete(places, name)
	}
	if len(places) > 0 {
		t.Errorf("places of bugs that nobody describes: %v", places)
	}
	if n, want := len(planted.Catalogue()), len(constants); n != want {
		t.Errorf("the catalogue has %d bugs, and there are %d", n, want)
	}
}

func mustRead(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// mustReadConstants returns the bugs of bug.go by the names of their constants.
func mustReadConstants(tb testing.TB) map[string]planted.Bug {
	tb.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "bug.go", nil, 0)
	if err != nil {
		tb.Fatal(err)
	}
	bugs := map[string]planted.Bug{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			tb.Fatal(err)
		}
		bugs[spec.Names[0].Name] = planted.Bug(text)
		return true
	})
	return bugs
}

// mustFind counts in production packages, in files of some name, what an expression's
// group matches.
func mustFind(tb testing.TB, expression string, in func(file string) bool) map[string]int {
	tb.Helper()
	mentions := regexp.MustCompile(expression)
	found := map[string]int{}
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".git") || path == filepath.Join(module, "chaos") || path == filepath.Join(module, "planted")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || !in(d.Name()):
			return nil
		}
		for _, m := range mentions.FindAllStringSubmatch(mustRead(tb, path), -1) {
			found[m[1]]++
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// The programs that people run have nothing of this package in them, neither code nor
// a name; the tagged ones, built alike, have.
func TestProgramsHoldNoTrace(t *testing.T) {
	traces := []string{"skerry/planted", "SKERRY_PLANTED"}
	for _, e := range planted.Catalogue() {
		traces = append(traces, string(e.Bug))
	}
	for _, program := range []string{"skerry", "skerry-edge"} {
		tagged := map[string]bool{"": false, "planted": true}
		if testing.Short() { // make test-long builds the tagged ones, too
			delete(tagged, "planted")
		}
		for tags, want := range tagged {
			path := filepath.Join(t.TempDir(), program)
			build := exec.Command("go", "build", "-tags", tags, "-o", path, "../cmd/"+program)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build %s with the tags %q: %v\n%s", program, tags, err, out)
			}
			binary := []byte(mustRead(t, path))
			for _, trace := range traces {
				if has := bytes.Contains(binary, []byte(trace)); has != want {
					t.Errorf("%s built with the tags %q: %q is in the program: %t", program, tags, trace, has)
				}
			}
		}
	}
}
