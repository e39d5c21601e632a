package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/chaos/mutate"
)

// mutated are the packages with decisions. Their mistakes would not be noticed elsewhere.
var mutated = []string{
	"reconcile", "syncproto", "hub/state", "hub/planner", "hub/liveness", "hub/gateway",
	"edge/journal", "edge/link", "edge/allocs", "edge/runner",
}

// mutateFlags are the flags of `skerry-chaos mutate`.
type mutateFlags struct {
	cfg      mutate.Config
	packages []string
	seed     uint64
	count    int
	match    string
	table    string
}

// mutantsCommand returns `mutate`.
func mutantsCommand() *cobra.Command {
	var m mutateFlags
	c := &cobra.Command{
		Use: "mutate", Args: cobra.NoArgs,
		Short: "Make small mistakes in the source, and say which of them no test and no campaign notices",
		Long: `Make small mistakes in the source, and say which of them no test and no campaign notices.

It runs in the root of the repository and needs Go. Each mutant is an overlay: no file is changed.
The tests of its package run first, then those of the packages that import it, then a campaign.
Results are kept in --results: the same command goes on where it ended.`,
		Example: `  skerry-chaos mutate --count 40
  skerry-chaos mutate --count 200 --campaign 3m --table mutants.md`,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.runMutants(cmd) },
	}
	f := c.Flags()
	f.StringSliceVar(&m.packages, "packages", mutated, "folders of the packages")
	f.Uint64Var(&m.seed, "seed", 1, "draws the mutants; the same seed draws the same from the same source")
	f.IntVar(&m.count, "count", 40, "how many to draw")
	f.StringVar(&m.match, "match", "", "only those whose place or change has this text")
	f.StringVar(&m.cfg.Results, "results", "dist/mutants.jsonl", "file of the results")
	f.StringVar(&m.table, "table", "", "file for a table of the results (default: standard output)")
	f.StringVar(&m.cfg.Work, "work", "dist/mutate", "folder for overlays and programs")
	f.DurationVar(&m.cfg.Unit, "unit", 2*time.Minute, "how long the tests of a package may take")
	f.BoolVar(&m.cfg.Own, "own", false, "run the tests of each mutant's own package alone: a quick first look; the same command without it goes on")
	f.DurationVar(&m.cfg.Campaign, "campaign", 0, "how long to look in virtual time for what the tests did not notice (default: not at all)")
	c.MarkFlagsMutuallyExclusive("own", "campaign")
	f.Uint64Var(&m.cfg.Seed, "campaign-seed", 1, "the first seed of the campaign")
	return c
}

// runMutants draws mutants, runs tests and campaigns on each, and writes a table of the results.
func (m *mutateFlags) runMutants(cmd *cobra.Command) (err error) {
	if m.cfg.Root, err = os.Getwd(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(m.cfg.Root, "policy_test.go")); err != nil {
		return errors.New("mutate the source: this is not the root of the repository; change to it")
	}
	for _, path := range []*string{&m.cfg.Work, &m.cfg.Results} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(m.cfg.Results), 0o755); err != nil {
		return fmt.Errorf("make the folder of the results: %w", err)
	}
	if m.cfg.Mutants, err = m.selectMutants(); err != nil {
		return err
	}
	m.cfg.Out = cmd.ErrOrStderr()
	all, err := m.cfg.Run(cmd.Context())
	return errors.Join(err, m.writeMutantTable(cmd, all))
}

// selectMutants finds all mutants in the packages that contain --match, and draws --count of them.
func (m *mutateFlags) selectMutants() ([]mutate.Mutant, error) {
	all, err := mutate.Find(m.cfg.Root, m.packages)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c mutate.Mutant) bool { return !strings.Contains(c.String(), m.match) })
	return mutate.Draw(all, m.seed, m.count), nil
}

// writeMutantTable writes the results to the file of --table, or to standard output.
func (m *mutateFlags) writeMutantTable(cmd *cobra.Command, all []mutate.Result) (err error) {
	equivalent, err := mutate.ReadEquivalent(filepath.Join(m.cfg.Root, "chaos/mutate"))
	if err != nil {
		return err
	}
	if m.table == "" {
		return mutate.WriteTable(cmd.OutOrStdout(), all, equivalent)
	}
	f, err := os.Create(m.table)
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return mutate.WriteTable(f, all, equivalent)
}
