package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"skerry/chaos/history"
	"skerry/chaos/report"
)

// errBroken is the error of `judge` for a history with violations. They were printed.
var errBroken = errors.New("the history violates an invariant")

// pastRunCommands returns `judge` and `report`, which work on the history of an earlier run.
func pastRunCommands() []*cobra.Command {
	judge := &cobra.Command{
		Use: "judge HISTORY", Args: cobra.ExactArgs(1),
		Short:   "Judge an old run again, by the checkers of this program",
		Example: `  skerry-chaos judge chaos-report/seed-17/history.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r, err := history.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, r.Close()) }()
			j, err := history.Judge(r)
			if err != nil {
				return err
			}
			if err := report.PrintJudgement(cmd.OutOrStdout(), j); err != nil {
				return err
			}
			if len(j.Found) > 0 {
				return errBroken
			}
			return nil
		},
	}
	page := &cobra.Command{
		Use: "report HISTORY [PAGE]", Args: cobra.RangeArgs(1, 2),
		Short: "Write the page of an old run again (default: report.html beside its history)",
		Example: `  skerry-chaos report chaos-report/seed-17/history.jsonl
  skerry-chaos report chaos-report/seed-17/history.jsonl page.html`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := filepath.Join(filepath.Dir(args[0]), "report.html")
			if len(args) == 2 {
				path = args[1]
			}
			if err := report.DrawRun(args[0], path, ""); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), path)
			return err
		},
	}
	return []*cobra.Command{judge, page}
}
