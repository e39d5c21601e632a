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
	var paths []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() {
			paths = append(paths, strings.TrimPrefix(c.CommandPath(), "skerry "))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(command())
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
		if strings.Contains(text, "`") {
			t.Errorf("%s: %q has quotes around a command", at, text)
		}
		for rest := text; ; {
			_, after, found := strings.Cut(rest, "skerry ")
			if !found {
				break
			}
			rest = after
			if !slices.ContainsFunc(paths, func(path string) bool {
				return after == path || strings.HasPrefix(after, path+" ") || strings.HasPrefix(after, path+",")
			}) {
				t.Errorf("%s: %q names no command behind skerry", at, text)
			}
		}
		for _, path := range paths {
			if strings.Contains(path, " ") && strings.Count(" "+text+" ", " "+path+" ") > strings.Count(text+" ", "skerry "+path+" ") {
				t.Errorf("%s: %q leaves out skerry before %s", at, text, path)
			}
		}
	}
	if hints < 150 {
		t.Errorf("only %d hints were found", hints)
	}
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
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// TestNodesAreCalledNodes reads the texts of commands and of the API: a machine that skerry node
// shows is a node. An edge is the program that runs there, which skerry edge starts.
func TestNodesAreCalledNodes(t *testing.T) {
	edge := regexp.MustCompile(`(?i)(^|[^-/a-z])edges?([^-/a-z]|$)`)
	program := []string{"edge agent", "edge, which is a node, or hub", "make the HTTP API: "} // the last is for programmers
	for at, text := range mustTexts(t, ".", "../console", "../../hub/api") {
		if !strings.Contains(text, " ") || !edge.MatchString(text) || strings.HasSuffix(at.file, "dev.go") {
			continue // a word alone is a value, as edge is of --role
		}
		if !slices.ContainsFunc(program, func(s string) bool { return strings.Contains(text, s) }) {
			t.Errorf("%s: %q", at, text)
		}
	}
	for line := range strings.Lines(examplesText) {
		if edge.MatchString(line) && !strings.Contains(line, "skerry edge ") && !strings.Contains(line, "--role edge") {
			t.Errorf("examples.txt: %s", line)
		}
	}
}
