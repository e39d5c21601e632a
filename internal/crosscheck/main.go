// Command crosscheck checks the types of programs for other systems, as their compiler would, and compiles nothing: to compile
// SQLite for each system takes minutes. make lint runs it; make cross compiles and links.
//
// Usage: crosscheck SYSTEM/ARCHITECTURE... PACKAGE...
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// module is the path of this module.
const module = "skerry"

func main() {
	failed := false
	for _, target := range os.Args[1:] {
		system, architecture, isTarget := strings.Cut(target, "/")
		if !isTarget || strings.HasPrefix(target, ".") {
			continue
		}
		for _, program := range os.Args[1:] {
			if !strings.HasPrefix(program, ".") {
				continue
			}
			fmt.Printf("check %s for %s\n", program, target)
			errs, err := checkTypes(system, architecture, program)
			if err != nil {
				errs = append(errs, err.Error())
			}
			for _, e := range errs {
				fmt.Fprintln(os.Stderr, e)
			}
			failed = failed || len(errs) > 0
		}
	}
	if failed {
		os.Exit(1)
	}
}

// checkTypes checks a program and the packages of this module that it imports, and returns their errors. Of other modules it
// checks the declarations.
func checkTypes(system, architecture, program string) (errs []string, err error) {
	cfg := &packages.Config{
		Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps,
		Env:  append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0"),
	}
	loaded, err := packages.Load(cfg, program)
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", program, err)
	}
	own := map[string]bool{}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		if p.PkgPath == module || strings.HasPrefix(p.PkgPath, module+"/") {
			own[p.PkgPath] = true
		}
	})
	cfg.Mode |= packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesSizes
	if loaded, err = packages.Load(cfg, slices.Sorted(maps.Keys(own))...); err != nil {
		return nil, fmt.Errorf("check the types of %s: %w", program, err)
	}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			errs = append(errs, e.Error())
		}
	})
	return errs, nil
}
