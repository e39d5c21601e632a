package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"skerry/chaos/history"
	"skerry/chaos/report"
)

// errBroken ends judge where a history breaks a promise. What it breaks was printed.
var errBroken = errors.New("a promise is broken")

// pastRunCommands are the commands for runs that are over.
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
	var kib int
	page := &cobra.Command{
		Use: "report HISTORY [PAGE]", Args: cobra.RangeArgs(1, 2),
		Short: "Draw the page of an old run anew (default: report.html beside its history)",
		RunE: func(cmd *cobra.Command, args []string) error {
			path := filepath.Join(filepath.Dir(args[0]), "report.html")
			if len(args) == 2 {
				path = args[1]
			}
			if err := drawReport(args[0], path, kib<<10); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), path)
			return err
		},
	}
	page.Flags().IntVar(&kib, "kib", 0, "how large the page may be, in KiB; what does not fit is drawn together or left out (default: as large as it gets)")
	return []*cobra.Command{judge, page}
}

// drawReport writes the page of a history, in at most so many bytes; 0: in as many as it
// takes.
func drawReport(from, to string, most int) (err error) {
	r, err := history.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	beside := report.PageLinks{}
	if filepath.Dir(from) == filepath.Dir(to) {
		beside.History = filepath.Base(from)
	}
	if most == 0 {
		return report.WriteRun(f, r, beside)
	}
	return report.WriteRunWithin(f, r, beside, most)
}
