package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// sourceFile is one Go file that is no test.
type sourceFile struct {
	path   string // from the root of the module
	syntax *ast.File
	lines  int
}

func (f *sourceFile) folderPath() string { return path.Dir(f.path) }

// moduleSource is all production code of the module.
type moduleSource struct {
	files   []*sourceFile
	fileSet *token.FileSet
}

// readSource reads the Go files below root that are no tests and no test data.
func readSource(root string) (*moduleSource, error) {
	s := &moduleSource{fileSet: token.NewFileSet()}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isSkippedFolder(entry.Name()) && name != root:
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		syntax, err := parser.ParseFile(s.fileSet, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("read source: %w", err)
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return fmt.Errorf("read source: %w", err)
		}
		lines := s.fileSet.Position(syntax.FileEnd).Line
		s.files = append(s.files, &sourceFile{path: filepath.ToSlash(relative), syntax: syntax, lines: lines})
		return nil
	})
	return s, err
}

func isSkippedFolder(name string) bool {
	return name == "testdata" || name == "dist" || name == "bin" || strings.HasPrefix(name, ".")
}

// unexportedMethods calls each for every unexported method, with its receiver's type.
func (f *sourceFile) unexportedMethods(each func(name, receiver string)) {
	for _, d := range f.syntax.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv == nil || len(fn.Recv.List) == 0 || fn.Name.IsExported() {
			continue
		}
		each(fn.Name.Name, receiverType(fn.Recv.List[0].Type))
	}
}

func receiverType(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return receiverType(t.X)
	case *ast.IndexExpr:
		return receiverType(t.X)
	case *ast.IndexListExpr:
		return receiverType(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

// isOneWord reports whether a name has no capital letter behind its first one.
func isOneWord(name string) bool { return strings.ToLower(name[1:]) == name[1:] }

// exportedNames calls each for every exported declaration of a package's surface.
func (f *sourceFile) exportedNames(each func(name string, documented bool)) {
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiverType(d.Recv.List[0].Type))) {
				each(d.Name.Name, d.Doc != nil)
			}
		case *ast.GenDecl:
			exportedSpecs(d, each)
		}
	}
}

// exportedSpecs counts a comment on a group, on a line above or behind as documentation.
func exportedSpecs(d *ast.GenDecl, each func(name string, documented bool)) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				each(spec.Name.Name, d.Doc != nil || spec.Doc != nil || spec.Comment != nil)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() {
					each(name.Name, d.Doc != nil || spec.Doc != nil || spec.Comment != nil)
				}
			}
		}
	}
}

// errorWraps counts the calls of fmt.Errorf and fleet.Errorf that are given an error called
// err, or …Err, and those of them that wrap it.
func (f *sourceFile) errorWraps() (all, wrapped int) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !isSelector(call.Fun, "fmt", "Errorf") && !isSelector(call.Fun, "fleet", "Errorf") || !hasErrorArgument(call.Args) {
			return true
		}
		all++
		if slices.ContainsFunc(call.Args, isWrappingFormat) {
			wrapped++
		}
		return true
	})
	return all, wrapped
}

func isWrappingFormat(e ast.Expr) bool {
	text, ok := e.(*ast.BasicLit)
	return ok && text.Kind == token.STRING && strings.Contains(text.Value, "%w")
}

func hasErrorArgument(args []ast.Expr) bool {
	for _, a := range args {
		if id, ok := a.(*ast.Ident); ok && (id.Name == "err" || strings.HasSuffix(id.Name, "Err")) {
			return true
		}
	}
	return false
}

// longComments counts the comments on declarations that have more than so many lines.
func (f *sourceFile) longComments(lines int) int {
	n := 0
	count := func(doc *ast.CommentGroup) {
		if doc != nil && strings.Count(doc.Text(), "\n") > lines {
			n++
		}
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			count(d.Doc)
		case *ast.GenDecl:
			count(d.Doc)
		}
	}
	return n
}

// ownImports are the packages of this module that a file imports, by folder.
func (f *sourceFile) ownImports() []string {
	var own []string
	for _, i := range f.syntax.Imports {
		if folder, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "skerry/"); ok {
			own = append(own, folder)
		}
	}
	return own
}

// callsOf counts the calls of a function of another package.
func (f *sourceFile) callsOf(pkg, function string) int {
	n := 0
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok && isSelector(call.Fun, pkg, function) {
			n++
		}
		return true
	})
	return n
}

// literalsOf counts the literals of a type of another package.
func (f *sourceFile) literalsOf(pkg, name string) int {
	n := 0
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		if literal, ok := node.(*ast.CompositeLit); ok && isSelector(literal.Type, pkg, name) {
			n++
		}
		return true
	})
	return n
}

func isSelector(e ast.Expr, pkg, name string) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && x.Name == pkg && selector.Sel.Name == name
}
