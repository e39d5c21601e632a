package main

import (
	"fmt"
	"go/ast"
	"io"
	"path"
	"slices"
	"strings"
)

// minMirrorFields is how many fields two struct types need to count as mirrors of each other.
const minMirrorFields = 3

// reportStructure counts what makes two packages say one thing twice.
func (s *moduleSource) reportStructure(w io.Writer) {
	adapters := 0
	for _, f := range s.files {
		if path.Base(f.path) == "adapters.go" {
			adapters++
		}
	}
	views, appliers := s.stateInterfaces()
	fmt.Fprintf(w, "mirror types (the same fields in two packages)\t%s\n", countAndNames(s.mirrorTypes()))
	fmt.Fprintf(w, "files of adapters\t%d\n", adapters)
	fmt.Fprintf(w, "interfaces over the state with View or Watch\t%s\n", countAndNames(views))
	fmt.Fprintf(w, "interfaces with Apply of a command\t%s\n", countAndNames(appliers))
}

func countAndNames(names []string) string {
	if len(names) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", len(names), strings.Join(names, ", "))
}

// mirrorTypes are the groups of struct types in different packages that have the same fields, by
// name and by type, whatever package the type is of. Frozen forms of the wire and the disk may
// mirror what they are the form of: their fields have numbers (`keyasint`), or they say so.
func (s *moduleSource) mirrorTypes() []string {
	byFields := map[string][]string{}
	s.eachTypeSpec(func(f *sourceFile, spec *ast.TypeSpec) {
		structType, ok := spec.Type.(*ast.StructType)
		if !ok || structType.Fields.NumFields() < minMirrorFields || isFrozenForm(spec, structType) {
			return
		}
		fields := fieldsOf(structType)
		byFields[fields] = append(byFields[fields], f.folderPath()+"."+spec.Name.Name)
	})
	var mirrors []string
	for _, types := range byFields {
		slices.Sort(types)
		inPackages := map[string]bool{}
		for _, t := range types {
			inPackages[t[:strings.LastIndex(t, ".")]] = true
		}
		if len(inPackages) > 1 {
			mirrors = append(mirrors, strings.Join(types, " = "))
		}
	}
	slices.Sort(mirrors)
	return mirrors
}

func isFrozenForm(spec *ast.TypeSpec, structType *ast.StructType) bool {
	return strings.Contains(spec.Doc.Text(), "frozen form") || slices.ContainsFunc(structType.Fields.List, func(field *ast.Field) bool {
		return field.Tag != nil && strings.Contains(field.Tag.Value, "keyasint")
	})
}

// fieldsOf writes the fields of a struct type without tags, comments and package names.
func fieldsOf(structType *ast.StructType) string {
	var b strings.Builder
	for _, field := range structType.Fields.List {
		kind := typeWithoutPackage(field.Type)
		if len(field.Names) == 0 {
			fmt.Fprintf(&b, "%s;", kind)
		}
		for _, name := range field.Names {
			fmt.Fprintf(&b, "%s %s;", name.Name, kind)
		}
	}
	return b.String()
}

func typeWithoutPackage(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.StarExpr:
		return "*" + typeWithoutPackage(t.X)
	case *ast.ArrayType:
		return "[]" + typeWithoutPackage(t.Elt)
	case *ast.MapType:
		return "map[" + typeWithoutPackage(t.Key) + "]" + typeWithoutPackage(t.Value)
	case *ast.IndexExpr:
		return typeWithoutPackage(t.X) + "[" + typeWithoutPackage(t.Index) + "]"
	}
	return fmt.Sprintf("%T", e)
}

// stateInterfaces are the interfaces below hub that stand for the state's reading side, and
// those that stand for what applies commands.
func (s *moduleSource) stateInterfaces() (views, appliers []string) {
	s.eachTypeSpec(func(f *sourceFile, spec *ast.TypeSpec) {
		declared, ok := spec.Type.(*ast.InterfaceType)
		if !ok || !strings.HasPrefix(f.path, "hub/") {
			return
		}
		name := f.folderPath() + "." + spec.Name.Name
		for _, method := range declared.Methods.List {
			for _, id := range method.Names {
				switch id.Name {
				case "View", "Watch":
					views = append(views, name)
				case "Apply":
					appliers = append(appliers, name)
				}
			}
		}
	})
	return slices.Compact(views), slices.Compact(appliers)
}

func (s *moduleSource) eachTypeSpec(each func(f *sourceFile, spec *ast.TypeSpec)) {
	for _, f := range s.files {
		for _, d := range f.syntax.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if typeSpec, ok := spec.(*ast.TypeSpec); ok {
					each(f, typeSpec)
				}
			}
		}
	}
}

// interfaceMethods are the methods that interfaces of a package declare, by folder.
func (s *moduleSource) interfaceMethods() map[string]map[string]bool {
	methods := map[string]map[string]bool{}
	s.eachTypeSpec(func(f *sourceFile, spec *ast.TypeSpec) {
		declared, ok := spec.Type.(*ast.InterfaceType)
		if !ok {
			return
		}
		for _, method := range declared.Methods.List {
			for _, id := range method.Names {
				if methods[f.folderPath()] == nil {
					methods[f.folderPath()] = map[string]bool{}
				}
				methods[f.folderPath()][id.Name] = true
			}
		}
	})
	return methods
}
