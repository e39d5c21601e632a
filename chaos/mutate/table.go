package mutate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ReadEquivalent reads a folder's list of mutants that behave as the original, and returns the reason by
// Mutant.Key. Its lines have the form KEY # REASON. A missing file gives nil.
func ReadEquivalent(folder string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(folder, equivalentsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the equivalent mutants: %w", err)
	}
	reasons := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if key, reason, ok := strings.Cut(line, " # "); ok {
			reasons[strings.TrimSpace(key)] = reason
		}
	}
	return reasons, nil
}

// WriteTable writes the results as Markdown: for each package how many mutants were noticed and by what, then a
// line for each mutant. Equivalent and invalid mutants are listed, and not counted.
func WriteTable(w io.Writer, all []Result, equivalent map[string]string) error {
	outcomes := []string{KilledByUnit, KilledByUsers, KilledByChaos, Survived, SurvivedUnit, SurvivedPackage}
	of := map[string]map[string]int{}
	valid, killed := 0, 0
	for _, r := range all {
		if r.Outcome == Invalid || equivalent[r.Key()] != "" {
			continue
		}
		if of[r.Package()] == nil {
			of[r.Package()] = map[string]int{}
		}
		of[r.Package()][r.Outcome]++
		valid++
		if strings.HasPrefix(r.Outcome, "killed") {
			killed++
		}
	}
	out := &strings.Builder{}
	fmt.Fprintf(out, "%d of %d mutants were noticed (%.0f %%); those that do not compile or do the same are not counted.\n\n",
		killed, valid, 100*float64(killed)/float64(max(1, valid)))
	fmt.Fprintf(out, "| package | %s |\n|---|%s\n", strings.Join(outcomes, " | "), strings.Repeat("---|", len(outcomes)))
	packages := make([]string, 0, len(of))
	for p := range of {
		packages = append(packages, p)
	}
	slices.Sort(packages)
	for _, p := range packages {
		fmt.Fprintf(out, "| %s ", p)
		for _, o := range outcomes {
			fmt.Fprintf(out, "| %d ", of[p][o])
		}
		fmt.Fprint(out, "|\n")
	}
	fmt.Fprint(out, "\n| outcome | place | kind | before | after | noticed by |\n|---|---|---|---|---|---|\n")
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Result) int {
		return cmp.Or(-cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	for _, r := range sorted {
		outcome, by := r.Outcome, r.By
		if reason := equivalent[r.Key()]; reason != "" {
			outcome, by = "equivalent", reason
		}
		fmt.Fprintf(out, "| %s | %s:%d %s | %s | `%s` | `%s` | %s |\n", outcome, r.File, r.Line, r.Function, r.Kind, r.Before, r.After, oneLine(by))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// firstLine returns the first line of a command's output that is not empty and does not begin with "#",
// shortened.
func firstLine(said string) string {
	for _, line := range strings.Split(said, "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			return oneLine(line)
		}
	}
	return ""
}

// firstFailure returns the folder with the name of the first test that failed, or with the panic that ended the
// tests; else the folder only.
func firstFailure(folder, said string) string {
	for _, line := range strings.Split(said, "\n") {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			return folder + " " + strings.Fields(name)[0]
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return folder + " " + oneLine(line)
		}
	}
	return folder
}

// firstViolation returns the line of the first run of a campaign with a violation or a failure, else the first
// line of the output.
func firstViolation(said string) string {
	for _, line := range strings.Split(said, "\n") {
		if strings.Contains(line, " violation ") || strings.Contains(line, " broken ") {
			return oneLine(line)
		}
	}
	return firstLine(said)
}
