package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/cmd/jobfile"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/follow"
	"skerry/drivers/builtin"
	"skerry/fleet"
	"skerry/fleet/jobspec"
	"skerry/fleet/validate"
)

func runCommand(s *command.Session) *cobra.Command {
	var file fileFlags
	var detach bool
	var req api.JobRegisterRequest
	var checkIndex uint64
	c := &cobra.Command{
		Use: "run FILE", Short: "Register a job, and monitor it until it runs", Args: cobra.ExactArgs(1),
		Example: `  skerry job run shop.hcl
  skerry job run --var tills=2 --detach shop.hcl
  skerry job run --output shop.hcl`,
		Long: "Register the job of a file (- is the standard input). Then follow its deployment until it has ended or,\n" +
			"without a deployment, its allocations until they run. The exit code is 2 if the job is registered, but not\n" +
			"all of it can run now: it needs capacity, a promotion, or nodes that are away.",
		RunE: s.Run(func(c *command.Call) error {
			job, err := file.parseJob(c, c.Args[0])
			if err != nil {
				return err
			}
			if file.readOnly {
				c.Out.JSON(struct{ Job *fleet.Job }{job})
				return nil
			}
			c.AskForJob(job)
			req.Submission = file.source
			req.EnforceIndex, req.JobModifyIndex = c.Changed("check-index"), fleet.Index(checkIndex)
			answer, err := c.Hub.RegisterJob(c.Context(), job, req)
			if err != nil {
				return err
			}
			if !c.Out.IsJSON() {
				c.Warn(allWarnings(answer.Warnings, job))
			}
			return follow.ShowAnswer(c, answer, answer.EvalID, detach, fmt.Sprintf("Job %q registered", job.ID))
		}),
	}
	file.addJobFileFlags(c)
	c.Flags().BoolVar(&req.PreserveCounts, "preserve-counts", false, "keep the counts of the registered job")
	c.Flags().BoolVar(&req.PreserveResources, "preserve-resources", false, "keep the resources of the registered job")
	command.AddDetach(c, &detach)
	c.Flags().BoolVar(&file.readOnly, "output", false, "write the job as JSON and do not register it")
	c.Flags().Uint64Var(&checkIndex, "check-index", 0, "register only if the job's modify index is this one; 0: only if the job does not exist")
	return c
}

func validateCommand(s *command.Session) *cobra.Command {
	var file fileFlags
	c := &cobra.Command{
		Use: "validate FILE", Short: "Check a job file, without a hub", Args: cobra.ExactArgs(1),
		Example: `  skerry job validate shop.hcl
  skerry job validate --var tills=2 shop.hcl`,
		RunE: s.RunOffline(func(c *command.Call) error {
			job, err := file.parseJob(c, c.Args[0])
			if c.Out.IsJSON() {
				return writeValidation(c, job, err)
			}
			if err != nil {
				return err
			}
			c.Warn(fileWarnings(job))
			c.Out.Line("Job %q is valid.", job.ID)
			return nil
		}),
	}
	file.addJobFileFlags(c)
	return c
}

// allWarnings returns the warnings of the hub, and those of the file about parts that were left out before sending.
func allWarnings(hub string, job *fleet.Job) []string {
	lines := strings.FieldsFunc(hub, func(r rune) bool { return r == '\n' })
	for _, line := range validate.Warnings(job) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// fileWarnings returns the warnings that need no hub: those of the job, and those about drivers that this release does
// not know.
func fileWarnings(job *fleet.Job) []string {
	return append(validate.Warnings(job), validate.DriverWarnings(job, builtin.Names(), nil)...)
}

// writeValidation writes the errors of a job file as JSON; the exit code says whether there are any.
func writeValidation(c *command.Call, job *fleet.Job, err error) error {
	var ds jobspec.Diagnostics
	if err != nil && !errors.As(err, &ds) {
		return err
	}
	out := struct {
		Valid       bool
		Diagnostics jobspec.Diagnostics
		Warnings    []string `json:",omitempty"`
	}{Valid: err == nil, Diagnostics: ds}
	if err == nil {
		out.Warnings = fileWarnings(job)
	}
	c.Out.JSON(out)
	if err == nil {
		return nil
	}
	return &console.ExitError{Code: 1, Err: err, Silent: true}
}

// fileFlags say how a job file is read.
type fileFlags struct {
	vars     []string
	varFiles []string
	// readOnly also accepts jobs that cannot be registered yet.
	readOnly bool

	// source is the file as it was read.
	source *fleet.Submission
}

func (f *fileFlags) addJobFileFlags(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.vars, "var", nil, "NAME=VALUE of a variable of the job file; may be repeated")
	c.Flags().StringArrayVar(&f.varFiles, "var-file", nil, "file with variables; may be repeated")
}

// repeatArgs returns the arguments with which another command reads the same file.
func (f *fileFlags) repeatArgs(name string) string {
	var line []string
	for _, path := range f.varFiles {
		line = append(line, "--var-file", quoted(path))
	}
	for _, v := range f.vars {
		line = append(line, "--var", quoted(v))
	}
	return strings.Join(append(line, quoted(name)), " ")
}

// quoted returns an argument quoted for a shell.
func quoted(arg string) string {
	if plainArg.MatchString(arg) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// plainArg matches arguments without special characters of a shell.
var plainArg = regexp.MustCompile(`^[A-Za-z0-9_./=:,@%+-]+$`)

// parseJob reads a job file; "-" is the standard input.
func (f *fileFlags) parseJob(c *command.Call, name string) (*fleet.Job, error) {
	opts := jobspec.Options{Now: time.Now(), Vars: f.vars, Environ: os.Environ(), Configs: builtin.Configs(), ForRegistration: !f.readOnly}
	f.source = &fleet.Submission{Format: fleet.FormatHCL2, VariableFlags: map[string]string{}}
	for _, v := range f.vars {
		name, value, _ := strings.Cut(v, "=")
		f.source.VariableFlags[name] = value
	}
	for _, path := range f.varFiles {
		src, err := jobfile.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f.source.Variables += string(src)
		opts.VarFiles = append(opts.VarFiles, jobspec.File{Name: path, Src: src})
	}
	opts.Files = jobfile.FolderOf(name)
	if name == "-" {
		src, err := io.ReadAll(io.LimitReader(c.InOrStdin(), fleet.MaxJobSize+1))
		if err != nil {
			return nil, fmt.Errorf("read the job from the standard input: %w", err)
		}
		return f.parseSource("stdin", src, opts)
	}
	src, err := jobfile.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return f.parseSource(name, src, opts)
}

// parseSource parses a file and notes it as the job's source.
func (f *fileFlags) parseSource(name string, src []byte, opts jobspec.Options) (*fleet.Job, error) {
	f.source.Source = string(src)
	if json.Valid(src) {
		f.source.Format = fleet.FormatJSON
	}
	return jobspec.Parse(name, src, opts)
}
