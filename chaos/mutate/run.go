package mutate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry/chaos/proc"
)

// Outcomes of a mutant, and the name of the file of equivalent mutants.
const (
	Invalid         = "invalid"          // it does not compile
	KilledByUnit    = "killed: unit"     // a test of its package fails
	KilledByUsers   = "killed: users"    // a test of a package that imports it fails
	KilledByChaos   = "killed: campaign" // a campaign in virtual time fails
	Survived        = "survived"         // all tests and a campaign passed
	SurvivedUnit    = "survived unit"    // all tests passed; there was no campaign
	SurvivedPackage = "survived package" // the tests of its package passed; nothing else was run
	equivalentsFile = "equivalent.txt"
)

// Config selects the mutants and tests of a run, and its files.
type Config struct {
	Root     string // absolute path of the module
	Work     string // folder for overlays and programs; Run creates it
	Results  string // file of JSON lines; mutants with a final result in it are not run again
	Mutants  []Mutant
	Unit     time.Duration // bound of the tests of one package
	Own      bool          // run only the tests of the mutant's package
	Campaign time.Duration // length of the campaign in wall time; 0: none
	Seed     uint64        // of the campaign
	Out      io.Writer     // gets a line for each mutant
}

// Result is a mutant with its outcome.
type Result struct {
	Mutant
	Outcome string
	By      string        // the test, compiler error or violation that noticed it
	Took    time.Duration // time of all builds and tests
}

// Run plays the mutants that have no final result yet, appends each result to the results' file, and returns
// the results of all mutants. When ctx ends, or at the first error, it returns the results so far.
func (c Config) Run(ctx context.Context) ([]Result, error) {
	known, err := ReadResults(c.Results)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Work, 0o711); err != nil { // tests run tasks of other users below it
		return nil, fmt.Errorf("make the work folder: %w", err)
	}
	users, err := importersByPackage(ctx, c.Root)
	if err != nil {
		return nil, err
	}
	var all []Result
	for i, m := range c.Mutants {
		at := slices.IndexFunc(known, func(r Result) bool {
			return r.ID == m.ID && c.isFinal(r.Outcome)
		})
		if at >= 0 {
			all = append(all, known[at])
			continue
		}
		r, err := c.runMutant(ctx, m, users[m.Package()])
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		if err != nil {
			return all, err
		}
		if err := appendResult(c.Results, r); err != nil {
			return all, err
		}
		all = append(all, r)
		fmt.Fprintf(c.Out, "%4d/%d  %-16s %6s  %s  (%s)\n", i+1, len(c.Mutants), r.Outcome, r.Took.Round(time.Second), m, r.By)
	}
	return all, nil
}

// isFinal reports whether the outcome of an earlier run needs no further tests in this one.
func (c Config) isFinal(outcome string) bool {
	switch outcome {
	case SurvivedPackage:
		return c.Own
	case SurvivedUnit:
		return c.Own || c.Campaign == 0
	}
	return true
}

// runMutant builds a mutant, runs the tests of its package, of the packages in users, and a campaign, and stops
// at the first that fails. It ends left processes and removes temporary files. An error means that the mutant
// could not be judged.
func (c Config) runMutant(ctx context.Context, m Mutant, users []string) (r Result, err error) {
	began := time.Now()
	defer func() {
		err = errors.Join(err, c.endLeftovers())
		r.Took = time.Since(began)
	}()
	r = Result{Mutant: m}
	if err := os.MkdirAll(c.temporaryFolder(), 0o711); err != nil {
		return r, fmt.Errorf("make the folder of temporary files: %w", err)
	}
	overlay, err := c.writeOverlay(m)
	if err != nil {
		return r, err
	}
	if said, ok := c.runCommand(ctx, time.Hour, "go", "build", "-overlay", overlay, "./"+m.Package()); !ok {
		r.Outcome, r.By = Invalid, firstLine(said)
		return r, nil
	}
	if c.Own {
		users = nil
	}
	for _, stage := range []struct {
		outcome  string
		packages []string
	}{{KilledByUnit, []string{m.Package()}}, {KilledByUsers, users}} {
		for _, p := range stage.packages {
			if said, ok := c.testPackage(ctx, overlay, p); !ok {
				r.Outcome, r.By = stage.outcome, firstFailure(p, said)
				return r, nil
			}
		}
	}
	switch {
	case c.Own:
		r.Outcome = SurvivedPackage
		return r, nil
	case c.Campaign == 0:
		r.Outcome = SurvivedUnit
		return r, nil
	}
	r.Outcome = Survived
	program := filepath.Join(c.Work, "skerry-chaos")
	if said, ok := c.runCommand(ctx, time.Hour, "go", "build", "-overlay", overlay, "-o", program, "./cmd/skerry-chaos"); !ok {
		return r, fmt.Errorf("build the campaign of %s: %s", m, said)
	}
	said, ok := c.runCommand(ctx, c.Campaign+10*time.Minute, program, "sim", "--seeds", "1000000", "--budget", c.Campaign.String(),
		"--seed", fmt.Sprint(c.Seed), "--stop", "--report", filepath.Join(c.Work, "campaign"))
	if !ok {
		r.Outcome, r.By = KilledByChaos, firstViolation(said)
	}
	return r, nil
}

// temporaryFolder returns the folder for temporary files of a mutant's tests.
func (c Config) temporaryFolder() string { return filepath.Join(c.Work, "tmp") }

// endLeftovers kills the processes that a mutant's tests left running below the temporary folder, and removes
// the folder. A mutant may fail to stop its tasks.
func (c Config) endLeftovers() error {
	return errors.Join(proc.KillBelow(c.temporaryFolder()), os.RemoveAll(c.temporaryFolder()))
}

// writeOverlay writes the mutant's file and an overlay for go build into Work, and returns the overlay's path.
func (c Config) writeOverlay(m Mutant) (string, error) {
	source, err := os.ReadFile(filepath.Join(c.Root, m.File))
	if err != nil {
		return "", fmt.Errorf("read the source: %w", err)
	}
	return WriteOverlay(c.Work, c.Root, map[string][]byte{m.File: m.Edit.applyToSource(source)})
}

// WriteOverlay writes changed files, by their path in the module, and the JSON file for go build -overlay into
// a folder. It returns the path of the JSON file. root is the absolute path of the module.
func WriteOverlay(folder, root string, changed map[string][]byte) (string, error) {
	replace := map[string]string{}
	for file, source := range changed {
		path := filepath.Join(folder, strings.ReplaceAll(file, "/", "-")+".txt") // no file of a package
		if err := os.WriteFile(path, source, 0o600); err != nil {
			return "", fmt.Errorf("write the overlay: %w", err)
		}
		replace[filepath.Join(root, file)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("encode the overlay: %w", err)
	}
	path := filepath.Join(folder, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// testPackage runs the short tests of a package with an overlay. It returns their output, and whether they
// passed within Unit.
func (c Config) testPackage(ctx context.Context, overlay, folder string) (string, bool) {
	return c.runCommand(ctx, c.Unit+5*time.Minute, "go", "test", "-overlay", overlay, "-short", "-vet=off", "-count=1", "-failfast",
		"-timeout", c.Unit.String(), "./"+folder)
}

// runCommand runs a program in the module's root, without cgo and with temporary files below Work. It returns
// the output, and whether the program succeeded within limit.
func (c Config) runCommand(ctx context.Context, limit time.Duration, name string, args ...string) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = c.Root, append(os.Environ(), "CGO_ENABLED=0", "TMPDIR="+c.temporaryFolder())
	said, err := cmd.CombinedOutput()
	return string(said), err == nil
}

// importersByPackage returns, by package folder, the folders of the packages with tests that import it. It
// looks only at hub, edge, syncproto and reconcile.
func importersByPackage(ctx context.Context, root string) (map[string][]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles", "./hub/...", "./edge/...", "./reconcile", "./syncproto/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	users := map[string][]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath                         string
			Imports, TestImports, XTestImports []string
			TestGoFiles, XTestGoFiles          []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return users, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		folder := strings.TrimPrefix(p.ImportPath, "skerry/")
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		for _, used := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			of := strings.TrimPrefix(used, "skerry/")
			if used != p.ImportPath && used != of && !slices.Contains(users[of], folder) {
				users[of] = append(users[of], folder)
			}
		}
	}
}

// ReadResults reads the results of earlier runs, the newest first. A missing file has no results.
func ReadResults(path string) ([]Result, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	defer f.Close()
	var all []Result
	for in := json.NewDecoder(f); ; {
		var r Result
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			slices.Reverse(all) // the newest of a mutant counts
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read results: result %d: %w", len(all)+1, err)
		}
		all = append(all, r)
	}
}

// appendResult appends a result to a file as a JSON line. It creates a missing file.
func appendResult(path string, r Result) (err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.Write(append(text, '\n'))
	return err
}
