package main

import (
	_ "embed"
	"fmt"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
)

// exampleJob is the file that job init writes.
//
//go:embed example.hcl
var exampleJob string

// jobInit writes an example of a job file, never over what there is.
func jobInit(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "init [FILE]", Short: "Write an example job file", Args: cobra.MaximumNArgs(1),
		Long: "Write an example job file, to example.hcl where no other is named. A file that is there is left alone.",
		RunE: func(cmd *cobra.Command, args []string) error {
			name := "example.hcl"
			if len(args) > 0 {
				name = args[0]
			}
			if err := writeNew(name, exampleJob); err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), struct{ File string }{name})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is written.\n", name)
			console.Hint(cmd.OutOrStdout(), "to run the job: skerry job run %s", name)
			return nil
		},
	}
}
