package mutate

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Find returns all mutants of packages, which are folders below root, in the order of the source. Tests are not
// mutated. A folder without a Go file is an error.
func Find(root string, packages []string) ([]Mutant, error) {
	var all []Mutant
	for _, folder := range packages {
		paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			return nil, fmt.Errorf("find the source of %s: %w", folder, err)
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("find the source of %s: the folder has no Go file", folder)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("read the source: %w", err)
			}
			found, err := findInFile(filepath.ToSlash(filepath.Join(folder, filepath.Base(path))), source)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

// Draw selects at most count mutants, from the packages in turn, so that small packages have their share. The
// selection depends only on the seed and the mutants' keys: a change of the source leaves most of it the same.
func Draw(all []Mutant, seed uint64, count int) []Mutant {
	var packages []string
	of := map[string][]Mutant{}
	for _, m := range all {
		if of[m.Package()] == nil {
			packages = append(packages, m.Package())
		}
		of[m.Package()] = append(of[m.Package()], m)
	}
	slices.Sort(packages)
	for _, mutants := range of {
		lot := map[string][sha256.Size]byte{}
		for _, m := range mutants {
			lot[m.Key()] = sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, m.Key()))
		}
		slices.SortStableFunc(mutants, func(a, b Mutant) int {
			x, y := lot[a.Key()], lot[b.Key()]
			return bytes.Compare(x[:], y[:])
		})
	}
	var drawn []Mutant
	for n := 0; len(drawn) < min(count, len(all)); n++ {
		p := packages[n%len(packages)]
		if len(of[p]) > 0 {
			drawn, of[p] = append(drawn, of[p][0]), of[p][1:]
		}
	}
	return drawn
}

// mutantFinder collects the mutants of one file.
type mutantFinder struct {
	file     string
	source   []byte
	fileSet  *token.FileSet
	function string // the function that is being walked
	found    []Mutant
}

// findInFile parses a file and returns the mutants of its functions, except methods named String. file is the path
// that the mutants get.
func findInFile(file string, source []byte) ([]Mutant, error) {
	f := &mutantFinder{file: file, source: source, fileSet: token.NewFileSet()}
	tree, err := parser.ParseFile(f.fileSet, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse the source: %w", err)
	}
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && fn.Name.Name != "String" {
			f.function = fn.Name.Name
			ast.Inspect(fn.Body, f.addNodeMutants)
		}
	}
	return f.found, nil
}

// addNodeMutants adds the mutants of a syntax node. It returns false if nothing below the node may be mutated.
func (f *mutantFinder) addNodeMutants(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.addBranchMutant(n)
	case *ast.BinaryExpr:
		f.addBinaryMutants(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.addMutant(Logic, n.Pos(), n.X.Pos(), "")
		}
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			f.addMutant(Boolean, n.Pos(), n.End(), other)
		}
	case *ast.ExprStmt:
		return f.addCallMutant(n)
	case *ast.AssignStmt:
		f.addAssignmentMutant(n)
	}
	return true
}

// operatorSwaps maps each operator to the one that is easily confused with it.
var operatorSwaps = map[token.Token]struct{ kind, text string }{
	token.LSS: {Comparison, "<="}, token.LEQ: {Comparison, "<"}, token.GTR: {Comparison, ">="}, token.GEQ: {Comparison, ">"},
	token.EQL: {Comparison, "!="}, token.NEQ: {Comparison, "=="}, token.LAND: {Logic, "||"}, token.LOR: {Logic, "&&"},
	token.ADD: {OffByOne, "-"}, token.SUB: {OffByOne, "+"},
}

// addBinaryMutants adds a mutant with the swapped operator, and one for each integer operand, one larger. It skips
// operands of products, quotients and shifts, which are units.
func (f *mutantFinder) addBinaryMutants(n *ast.BinaryExpr) {
	if o, ok := operatorSwaps[n.Op]; ok && o.kind != OffByOne {
		f.addMutant(o.kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), o.text)
	}
	for _, side := range []ast.Expr{n.X, n.Y} {
		lit, ok := side.(*ast.BasicLit)
		if !ok || lit.Kind != token.INT || n.Op == token.MUL || n.Op == token.QUO || n.Op == token.SHL {
			continue // a unit
		}
		if v, err := strconv.ParseUint(lit.Value, 0, 32); err == nil {
			f.addMutant(OffByOne, lit.Pos(), lit.End(), strconv.FormatUint(v+1, 10))
		}
	}
}

// addBranchMutant adds a mutant that never takes a branch, but still computes its condition and uses its variables. It
// skips "err != nil": the effect of an ignored error is not defined in one place.
func (f *mutantFinder) addBranchMutant(n *ast.IfStmt) {
	if f.sourceText(n.Cond) == "err != nil" {
		return
	}
	f.addMutant(Branch, n.Cond.Pos(), n.Cond.End(), "("+f.sourceText(n.Cond)+") && false")
}

// addCallMutant adds a mutant without a call whose result is not used. For a call that logs, locks, closes or stops
// something it adds none and returns false: nothing below it is mutated.
func (f *mutantFinder) addCallMutant(n *ast.ExprStmt) bool {
	call, ok := n.X.(*ast.CallExpr)
	if !ok {
		return true
	}
	name := f.sourceText(call.Fun)
	for _, word := range []string{"Log.", "Logger.", "log.", "panic", "Lock", "Unlock", "Close", "Stop", "cancel", "wg.", "Done"} {
		if strings.Contains(name, word) {
			return false
		}
	}
	if _, literal := call.Fun.(*ast.FuncLit); !literal {
		f.addMutant(Call, n.Pos(), n.End(), "_ = func() { "+f.sourceText(n)+" }")
	}
	return true
}

// addAssignmentMutant adds a mutant without an assignment to a field or an element. It skips assignments to variables.
func (f *mutantFinder) addAssignmentMutant(n *ast.AssignStmt) {
	if n.Tok == token.DEFINE || len(n.Lhs) != 1 || len(n.Rhs) != 1 {
		return
	}
	switch n.Lhs[0].(type) {
	case *ast.SelectorExpr, *ast.IndexExpr:
		f.addMutant(Assignment, n.Pos(), n.End(), "_ = func() { "+f.sourceText(n)+" }")
	}
}

// sourceText returns the source of a syntax node.
func (f *mutantFinder) sourceText(n ast.Node) string {
	return string(f.source[f.fileSet.Position(n.Pos()).Offset:f.fileSet.Position(n.End()).Offset])
}

// addMutant adds a mutant that replaces the source from one position to another by text.
func (f *mutantFinder) addMutant(kind string, from, to token.Pos, text string) {
	start, end := f.fileSet.Position(from), f.fileSet.Position(to)
	e := Edit{Start: start.Offset, End: end.Offset, Text: text}
	lineStart := start.Offset - start.Column + 1
	lineEnd := len(f.source)
	if i := strings.IndexByte(string(f.source[end.Offset:]), '\n'); i >= 0 {
		lineEnd = end.Offset + i
	}
	before := string(f.source[lineStart:lineEnd])
	after := before[:start.Offset-lineStart] + text + before[end.Offset-lineStart:]
	f.found = append(f.found, Mutant{
		ID: newID(f.file, f.source, e), Kind: kind, File: f.file, Line: start.Line, Function: f.function,
		Before: oneLine(before), After: oneLine(after), Edit: e,
	})
}
