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

// What becomes of a mutant.
const (
	Invalid         = "invalid"          // it does not compile
	KilledByUnit    = "killed: unit"     // by the tests of its package
	KilledByUsers   = "killed: users"    // by those of packages that import it
	KilledByChaos   = "killed: campaign" // by a campaign in virtual time
	Survived        = "survived"
	SurvivedUnit    = "survived unit"    // and no campaign was asked
	SurvivedPackage = "survived package" // and nobody else was asked
	equivalentsFile = "equivalent.txt"
)

// Config of a run.
type Config struct {
	Root     string // of the module
	Work     string // folder of overlays and programs; made
	Results  string // file of JSON lines; a mutant that is in it is not run again
	Mutants  []Mutant
	Unit     time.Duration // that the tests of a package may take
	Own      bool          // ask the tests of the mutant's package alone
	Campaign time.Duration // 0: none
	Seed     uint64        // of the campaign
	Out      io.Writer
}

// Result is what became of a mutant.
type Result struct {
	Mutant
	Outcome string
	By      string        // what noticed it
	Took    time.Duration // all in all
}

// Run runs what is not in the results yet, and returns the results of all mutants.
func (c Config) Run(ctx context.Context) ([]Result, error) {
	known, err := ReadResults(c.Results)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Work, 0o700); err != nil {
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

// isFinal reports whether an earlier run asked everybody whom this run would ask.
func (c Config) isFinal(outcome string) bool {
	switch outcome {
	case SurvivedPackage:
		return c.Own
	case SurvivedUnit:
		return c.Own || c.Campaign == 0
	}
	return true
}

// runMutant plays one mutant.
func (c Config) runMutant(ctx context.Context, m Mutant, users []string) (r Result, err error) {
	began := time.Now()
	defer func() {
		err = errors.Join(err, c.endLeftovers())
		r.Took = time.Since(began)
	}()
	r = Result{Mutant: m}
	if err := os.MkdirAll(c.temporaryFolder(), 0o700); err != nil {
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

// temporaryFolder is the folder of what a mutant's tests leave.
func (c Config) temporaryFolder() string { return filepath.Join(c.Work, "tmp") }

// endLeftovers ends the processes that a mutant's tests left running, and removes their files:
// a mutant may forget its tasks.
func (c Config) endLeftovers() error {
	return errors.Join(proc.KillBelow(c.temporaryFolder()), os.RemoveAll(c.temporaryFolder()))
}

// writeOverlay writes the changed file, and the description that go build wants of it.
func (c Config) writeOverlay(m Mutant) (string, error) {
	source, err := os.ReadFile(filepath.Join(c.Root, m.File))
	if err != nil {
		return "", fmt.Errorf("read the source: %w", err)
	}
	return WriteOverlay(c.Work, c.Root, map[string][]byte{m.File: m.Edit.applyToSource(source)})
}

// WriteOverlay writes changed files, and the description of them that go build -overlay reads,
// into a folder, and returns the path of the description. Root is the absolute path of the
// module.
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

func (c Config) testPackage(ctx context.Context, overlay, folder string) (string, bool) {
	return c.runCommand(ctx, c.Unit+5*time.Minute, "go", "test", "-overlay", overlay, "-short", "-vet=off", "-count=1", "-failfast",
		"-timeout", c.Unit.String(), "./"+folder)
}

// runCommand runs a program in the module, without what cgo adds, and returns what it says,
// and whether it ended well. Its temporary files are below Work.
func (c Config) runCommand(ctx context.Context, limit time.Duration, name string, args ...string) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = c.Root, append(os.Environ(), "CGO_ENABLED=0", "TMPDIR="+c.temporaryFolder())
	said, err := cmd.CombinedOutput()
	return string(said), err == nil
}

// importersByPackage are the folders of the packages below hub, edge and syncproto, and of
// reconcile, that import each package, by its folder.
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

// ReadResults reads the results of earlier runs; no file: none.
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
