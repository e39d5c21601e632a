package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/cmd/jobfile"
	"skerry/drivers/builtin"
	"skerry/fleet"
	"skerry/fleet/jobspec"
)

// jobFileFlags say how a job file is evaluated.
type jobFileFlags struct {
	vars     []string
	varFiles []string
	// readOnly takes also what cannot be registered yet.
	readOnly bool

	// source is the file as it was read.
	source *fleet.Submission
}

func (f *jobFileFlags) addJobFileFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.vars, "var", nil, "NAME=VALUE of a variable of the job file; may be repeated")
	cmd.Flags().StringArrayVar(&f.varFiles, "var-file", nil, "file with variables; may be repeated")
}

// repeatArgs is how the same file is given to another command.
func (f *jobFileFlags) repeatArgs(name string) string {
	var line []string
	for _, path := range f.varFiles {
		line = append(line, "--var-file", quoted(path))
	}
	for _, v := range f.vars {
		line = append(line, "--var", quoted(v))
	}
	return strings.Join(append(line, quoted(name)), " ")
}

// quoted is an argument as a shell takes it.
func quoted(arg string) string {
	if plainArg.MatchString(arg) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// plainArg is what means nothing to a shell.
var plainArg = regexp.MustCompile(`^[A-Za-z0-9_./=:,@%+-]+$`)

// parseJobFile reads a job file, "-" being the standard input.
func (f *jobFileFlags) parseJobFile(cmd *cobra.Command, name string) (*fleet.Job, error) {
	opts := jobspec.Options{Now: time.Now(), Vars: f.vars, Environ: os.Environ(), Drivers: builtin.Names(), Configs: builtin.Configs(), ForRegistration: !f.readOnly}
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
		src, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), fleet.MaxJobSize+1))
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
func (f *jobFileFlags) parseSource(name string, src []byte, opts jobspec.Options) (*fleet.Job, error) {
	f.source.Source = string(src)
	if json.Valid(src) {
		f.source.Format = fleet.FormatJSON
	}
	return jobspec.Parse(name, src, opts)
}
