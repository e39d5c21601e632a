package main

import (
	"fmt"
	"go/ast"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// maxReceivers is how many types may have an unexported method of one name.
const maxReceivers = 4

// writeReport writes each figure of the whole module on a line, and below it the names behind it.
func (s *moduleSource) writeReport(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "measure\tnow")
	s.reportMethods(w)
	s.reportImports(w)
	s.reportDocumentation(w)
	s.reportLines(w)
	s.reportStructure(w)
	if err := s.reportCommits(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return s.reportSharedMethods(out)
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }

func (s *moduleSource) reportMethods(w io.Writer) {
	methods, oneWord, letters := 0, 0, 0
	for _, f := range s.files {
		f.unexportedMethods(func(name, _ string) {
			methods++
			letters += len(name)
			if isOneWord(name) {
				oneWord++
			}
		})
	}
	fmt.Fprintf(w, "unexported methods with a one-word name\t%d of %d (%.0f %%)\n", oneWord, methods, percent(oneWord, methods))
	fmt.Fprintf(w, "mean length of unexported methods' names\t%.1f\n", float64(letters)/float64(max(methods, 1)))
}

// receiversOf are the types that have an unexported method, by its name, without methods that an
// interface of their package asks for: these have one name on many types by their nature.
func (s *moduleSource) receiversOf() map[string]map[string]bool {
	receivers, asked := map[string]map[string]bool{}, s.interfaceMethods()
	for _, f := range s.files {
		f.unexportedMethods(func(name, receiver string) {
			if asked[f.folderPath()][name] {
				return
			}
			if receivers[name] == nil {
				receivers[name] = map[string]bool{}
			}
			receivers[name][f.folderPath()+"."+receiver] = true
		})
	}
	return receivers
}

func (s *moduleSource) reportSharedMethods(out io.Writer) error {
	receivers := s.receiversOf()
	var shared []string
	for name, of := range receivers {
		if len(of) > maxReceivers {
			shared = append(shared, name)
		}
	}
	slices.SortFunc(shared, func(a, b string) int {
		if by := len(receivers[b]) - len(receivers[a]); by != 0 {
			return by
		}
		return strings.Compare(a, b)
	})
	if _, err := fmt.Fprintf(out, "\nunexported methods on more than %d types: %d\n", maxReceivers, len(shared)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	for _, name := range shared {
		if _, err := fmt.Fprintf(out, "  %-16s %d\n", name, len(receivers[name])); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

// importsByFolder are the packages of this module that each package imports, by folder.
func (s *moduleSource) importsByFolder() map[string][]string {
	imports := map[string][]string{}
	for _, f := range s.files {
		imports[f.folderPath()] = append(imports[f.folderPath()], f.ownImports()...)
	}
	for folder, list := range imports {
		slices.Sort(list)
		imports[folder] = slices.Compact(list)
	}
	return imports
}

// reachable are all packages of this module that a package needs.
func reachable(imports map[string][]string, folder string, found map[string]bool) map[string]bool {
	for _, i := range imports[folder] {
		if !found[i] {
			found[i] = true
			reachable(imports, i, found)
		}
	}
	return found
}

// importDepth is the longest chain of imports that begins at a package.
func importDepth(imports map[string][]string, folder string, known map[string]int) int {
	if depth, ok := known[folder]; ok {
		return depth
	}
	depth := 0
	for _, i := range imports[folder] {
		depth = max(depth, 1+importDepth(imports, i, known))
	}
	known[folder] = depth
	return depth
}

func (s *moduleSource) reportImports(w io.Writer) {
	imports, known := s.importsByFolder(), map[string]int{}
	deepest, sum := 0, 0
	for folder := range imports {
		deepest = max(deepest, importDepth(imports, folder, known))
		sum += len(reachable(imports, folder, map[string]bool{}))
	}
	fmt.Fprintf(w, "packages\t%d\n", len(imports))
	fmt.Fprintf(w, "import depth\t%d\n", deepest)
	fmt.Fprintf(w, "mean number of packages that a package needs\t%.1f\n", float64(sum)/float64(max(len(imports), 1)))
}

func (s *moduleSource) reportDocumentation(w io.Writer) {
	exported, documented, wraps, wrapped, long := 0, 0, 0, 0, 0
	for _, f := range s.files {
		f.exportedNames(func(_ string, has bool) {
			exported++
			if has {
				documented++
			}
		})
		all, with := f.errorWraps()
		wraps, wrapped = wraps+all, wrapped+with
		long += f.longComments(maxCommentLines)
	}
	fmt.Fprintf(w, "exported names with a comment\t%d of %d (%.0f %%)\n", documented, exported, percent(documented, exported))
	fmt.Fprintf(w, "errors wrapped with %%w\t%d of %d (%.0f %%)\n", wrapped, wraps, percent(wrapped, wraps))
	fmt.Fprintf(w, "comments of more than %d lines\t%d\n", maxCommentLines, long)
}

func (s *moduleSource) reportLines(w io.Writer) {
	lines, longest, longestFunction := map[string]int{}, 0, 0
	var longestFile, longestName string
	switches, codecs := 0, 0
	for _, f := range s.files {
		top, _, _ := strings.Cut(f.path, "/")
		lines[top] += f.lines
		lines[""] += f.lines
		if f.lines > longest {
			longest, longestFile = f.lines, f.path
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if n := s.fileSet.Position(fn.End()).Line - s.fileSet.Position(fn.Pos()).Line + 1; n > longestFunction {
					longestFunction, longestName = n, f.path+" "+fn.Name.Name
				}
			}
		}
		switches += f.callsOf("planted", "On") + f.callsOf("testing", "Testing")
		codecs += f.literalsOf("cbor", "EncOptions") + f.callsOf("cbor", "CoreDetEncOptions") + f.callsOf("cbor", "CanonicalEncOptions")
	}
	fmt.Fprintf(w, "lines without tests\t%d\n", lines[""])
	for _, top := range slices.Sorted(maps.Keys(lines)) {
		if top != "" {
			fmt.Fprintf(w, "  %s\t%d\n", top, lines[top])
		}
	}
	fmt.Fprintf(w, "longest file\t%d (%s)\n", longest, longestFile)
	fmt.Fprintf(w, "longest function\t%d (%s)\n", longestFunction, longestName)
	fmt.Fprintf(w, "switches of tests in production code\t%d\n", switches)
	fmt.Fprintf(w, "places that configure CBOR\t%d\n", codecs)
}

func (s *moduleSource) reportCommits(w io.Writer) error {
	subjects, err := commitSubjects(0)
	if err != nil {
		return err
	}
	long := 0
	for _, subject := range subjects {
		if len([]rune(subject)) > maxSubject {
			long++
		}
	}
	fmt.Fprintf(w, "commit subjects of more than %d letters\t%d of %d\n", maxSubject, long, len(subjects))
	return nil
}
