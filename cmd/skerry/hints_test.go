package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHintsNameCommands reads all hints in the source: each command that they name exists and has
// the program's name before it, and no other text of the commands has a form of hint of its own.
func TestHintsNameCommands(t *testing.T) {
	paths := runnablePaths(rootCommand())
	hints := 0
	for at, text := range mustTexts(t, "../../cmd", "../../hub", "../../edge", "../../fleet", "../../syncproto", "../../drivers") {
		if !at.hint {
			own := strings.Contains(text, "\n  skerry ") && !strings.HasPrefix(text, "  skerry ") || strings.Contains(strings.ToLower(text), "hint: ")
			if own && !strings.HasSuffix(at.file, "console.go") && !strings.HasSuffix(at.file, "dev.go") {
				t.Errorf("%s: %q is a hint, and console.Hint does not write it", at, text)
			}
			continue
		}
		hints++
		for _, mistake := range hintMistakes(text, paths) {
			t.Errorf("%s: %q %s", at, text, mistake)
		}
	}
	if hints < 150 {
		t.Errorf("only %d hints were found", hints)
	}
}

// runnablePaths lists the commands that run something, without the program's name.
func runnablePaths(c *cobra.Command) (paths []string) {
	if c.Runnable() {
		paths = append(paths, strings.TrimPrefix(c.CommandPath(), "skerry "))
	}
	for _, sub := range c.Commands() {
		paths = append(paths, runnablePaths(sub)...)
	}
	return paths
}

// hintMistakes lists the mistakes in the commands that a hint names.
func hintMistakes(hint string, paths []string) (mistakes []string) {
	if strings.Contains(hint, "`") {
		mistakes = append(mistakes, "has quotes around a command")
	}
	_, rest, found := strings.Cut(hint, "skerry ")
	for ; found; _, rest, found = strings.Cut(rest, "skerry ") {
		if !slices.ContainsFunc(paths, func(path string) bool {
			return rest == path || strings.HasPrefix(rest, path+" ") || strings.HasPrefix(rest, path+",")
		}) {
			mistakes = append(mistakes, "names no command behind skerry")
		}
	}
	for _, path := range paths {
		if strings.Contains(path, " ") && strings.Count(" "+hint+" ", " "+path+" ") > strings.Count(hint+" ", "skerry "+path+" ") {
			mistakes = append(mistakes, "leaves out skerry before "+path)
		}
	}
	return mistakes
}

// textAt is where a text stands in the source.
type textAt struct {
	file string
	line int
	hint bool
}

func (at textAt) String() string { return at.file + ":" + strconv.Itoa(at.line) }

// mustTexts reads the strings of the program's source, and whether each is a hint.
func mustTexts(t *testing.T, folders ...string) map[textAt]string {
	t.Helper()
	texts := map[textAt]string{}
	files := token.NewFileSet()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			mustNoteTexts(t, files, file, texts)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// mustNoteTexts adds the strings of a file to texts. A hint is noted before the string in it.
func mustNoteTexts(t *testing.T, files *token.FileSet, file *ast.File, texts map[textAt]string) {
	t.Helper()
	note := func(n ast.Node, hint bool) {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		at := files.Position(lit.Pos())
		if !hint && texts[textAt{at.Filename, at.Line, true}] == text {
			return
		}
		texts[textAt{at.Filename, at.Line, hint}] = text
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if called, ok := n.Fun.(*ast.SelectorExpr); ok && (called.Sel.Name == "WithHint" || called.Sel.Name == "Hint") {
				for _, arg := range n.Args {
					note(arg, true)
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Hint" {
				note(n.Value, true)
			}
		case *ast.BasicLit:
			note(n, false)
		}
		return true
	})
}

// TestNodesAreCalledNodes reads the texts of commands and of the API: a machine that skerry node
// shows is a node. An edge is the program that runs there, which skerry edge starts.
func TestNodesAreCalledNodes(t *testing.T) {
	edge := regexp.MustCompile(`(?i)(^|[^-/_a-z])edges?([^-/_a-z]|$)`)
	program := []string{"skerry edge ", "--role edge", "edge agent", "edge, which is a node, or hub", "with the role edge has", "make the HTTP API: "} // the last is for programmers
	for at, text := range mustTexts(t, ".", "../console", "../../hub/api") {
		if !strings.Contains(text, " ") || !edge.MatchString(text) || strings.HasSuffix(at.file, "dev.go") || strings.HasPrefix(at.file, "local/") {
			continue // a word alone is a value, as edge is of --role; the commands on site speak to the program
		}
		if !slices.ContainsFunc(program, func(s string) bool { return strings.Contains(text, s) }) {
			t.Errorf("%s: %q", at, text)
		}
	}
}
