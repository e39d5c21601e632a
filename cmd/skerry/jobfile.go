package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"skerry/cmd/edged"
	"skerry/fleet"
	"skerry/fleet/jobspec"
)

// fileFlags say how a job file is evaluated.
type fileFlags struct {
	vars     []string
	varFiles []string
	// readOnly takes also what cannot be registered yet.
	readOnly bool
}

func (f *fileFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.vars, "var", nil, "NAME=VALUE of a variable of the job file; may be repeated")
	cmd.Flags().StringArrayVar(&f.varFiles, "var-file", nil, "file with variables; may be repeated")
}

// parse reads a job file, "-" being the standard input.
func (f *fileFlags) parse(cmd *cobra.Command, name string) (*fleet.Job, error) {
	opts := jobspec.Options{Vars: f.vars, Environ: os.Environ(), Drivers: edged.DriverNames(), ForRegistration: !f.readOnly}
	for _, path := range f.varFiles {
		src, err := readJobFile(path)
		if err != nil {
			return nil, err
		}
		opts.VarFiles = append(opts.VarFiles, jobspec.File{Name: path, Src: src})
	}
	folder := filepath.Dir(name) // "." for the standard input
	opts.ReadFile = func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		return readJobFile(path)
	}
	if name == "-" {
		src, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), fleet.MaxJobSize+1))
		if err != nil {
			return nil, fmt.Errorf("read the job from the standard input: %w", err)
		}
		return jobspec.Parse("stdin", src, opts)
	}
	src, err := readJobFile(name)
	if err != nil {
		return nil, err
	}
	return jobspec.Parse(name, src, opts)
}

// readJobFile reads a file of a bounded size.
func readJobFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, &fleet.Error{Code: fleet.CodeNotFound, Message: err.Error()}
	}
	defer file.Close()
	src, err := io.ReadAll(io.LimitReader(file, fleet.MaxJobSize+1))
	if err != nil {
		return nil, &fleet.Error{Code: fleet.CodeInvalid, Message: err.Error()} // names the file
	}
	if len(src) > fleet.MaxJobSize {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%s has more than %d bytes", name, fleet.MaxJobSize)
	}
	return src, nil
}
