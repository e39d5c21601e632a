package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
)

// simulateFlags are the flags of `skerry-chaos sim`.
type simulateFlags struct {
	cfg       virtual.Campaign
	scenarios []string
	kinds     []string
	report    string
}

// workerCommand is the argument that makes this program play one schedule (virtual.Work). Only sim and
// rehearse start it.
const workerCommand = "play-one"

// simCommands returns `sim`.
func simCommands() []*cobra.Command {
	var s simulateFlags
	c := &cobra.Command{
		Use: "sim", Args: cobra.NoArgs,
		Short: "Play schedules of faults in virtual time: whole clusters in one process, an hour in seconds",
		Long: `Play schedules of faults in virtual time: whole clusters in one process, an hour in seconds.

Schedules are scenarios from files, or drawn from seeds. On Linux the same seed, played by the same
program, gives the same history to the last record, if the program is built without cgo, as make build
does: a failure can be played again as often as it takes to understand it. What fails is kept below --report: the schedule, the history, a page to look
at, and all data directories.`,
		Example: `  skerry-chaos sim --seeds 20
  skerry-chaos sim --seed 17 --seeds 1 --record
  skerry-chaos sim --seed 17 --repeat 10
  skerry-chaos sim --scenario chaos/scenarios/away-kept.yaml
  skerry-chaos sim --seeds 1000 --budget 10m --coverage`,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.runSimulation(cmd) },
	}
	f := c.Flags()
	f.IntVar(&s.cfg.Seeds, "seeds", 0, "how many schedules to draw (default: 1, or as many as the budget allows)")
	f.Uint64Var(&s.cfg.First, "seed", 1, "the first seed")
	f.DurationVar(&s.cfg.Budget, "budget", 0, "no run is begun after this time (default: no bound)")
	f.StringArrayVar(&s.scenarios, "scenario", nil, "file of a scenario to play; may be repeated")
	f.IntVar(&s.cfg.Shape.Hubs, "hubs", 3, "hubs of drawn schedules")
	f.IntVar(&s.cfg.Shape.Edges, "edges", 10, "edges of drawn schedules")
	f.DurationVar(&s.cfg.Shape.Length, "length", time.Hour, "length of drawn schedules")
	f.IntVar(&s.cfg.Shape.FaultsPerHour, "faults", 22, "faults an hour of drawn schedules")
	f.StringSliceVar(&s.kinds, "kinds", nil, "kinds of faults to draw (default: all)")
	f.IntVar(&s.cfg.Workers, "workers", 0, "runs side by side (default: one more than cores)")
	f.DurationVar(&s.cfg.Shrink, "shrink", 0, "how long to look for the shortest schedule that still fails")
	f.BoolVar(&s.cfg.Stop, "stop", false, "end after the first run that fails")
	f.IntVar(&s.cfg.Times, "repeat", 0, "play each schedule so often, and say how many histories are the same and where others differ")
	f.StringVar(&s.report, "report", "chaos-report", "folder for what is kept")
	f.BoolVar(&s.cfg.Record, "record", false, "keep histories and reports also of runs that pass")
	f.BoolVar(&s.cfg.Debug, "debug", false, "hubs and edges log everything")
	f.BoolVar(&s.cfg.Coverage, "coverage", false, "fail where a kind of fault never hit, or an important branch was never reached")
	return []*cobra.Command{c}
}

// runSimulation runs the campaign that the flags describe, or with --repeat compares the histories of
// repeated runs.
func (s *simulateFlags) runSimulation(cmd *cobra.Command) error {
	program, err := workerCommandLine()
	if err != nil {
		return err
	}
	s.cfg.Program = program
	s.cfg.Name, s.cfg.Repeat = "simulation", "skerry-chaos "+strings.Join(os.Args[1:], " ")
	s.cfg.Out = cmd.OutOrStdout()
	if s.cfg.Dir, err = filepath.Abs(s.report); err != nil {
		return err
	}
	s.cfg.Memory = memoryFolder()
	for _, path := range s.scenarios {
		sc, err := virtual.ReadSchedule(path)
		if err != nil {
			return err
		}
		s.cfg.Scenarios = append(s.cfg.Scenarios, virtual.Scenario{Name: strings.TrimSuffix(filepath.Base(path), ".yaml"), Schedule: sc})
	}
	if err := s.completeShape(); err != nil {
		return err
	}
	if s.cfg.Times > 0 {
		return s.cfg.RunRepeatedly(cmd.Context())
	}
	err = s.cfg.Run(cmd.Context())
	if err != nil {
		fmt.Fprintf(s.cfg.Out, "\nwhat failed is kept in %s\n", s.cfg.Dir)
	}
	return err
}

// memoryFolder returns a directory on a file system in memory; "" if the system has none.
func memoryFolder() string {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// completeShape checks the flags of drawn schedules, and sets the number of seeds and the kinds of
// fault.
func (s *simulateFlags) completeShape() error {
	switch {
	case s.cfg.Seeds < 0 || s.cfg.Shape.Hubs < 1 || s.cfg.Shape.Edges < 1:
		return errors.New("a simulation needs at least one hub and one edge, and no negative number of seeds")
	case s.cfg.Budget < 0:
		return fmt.Errorf("a simulation cannot take %s: --budget is not negative", s.cfg.Budget)
	case s.cfg.Seeds == 0 && s.cfg.Budget > 0:
		s.cfg.Seeds = 1 << 30
	case s.cfg.Seeds == 0 && len(s.scenarios) == 0:
		s.cfg.Seeds = 1
	}
	for _, k := range s.kinds {
		if _, ok := schedule.Kind(k).Info(); !ok {
			return fmt.Errorf("draw faults: there is no kind %q; the kinds are %v", k, schedule.Kinds())
		}
		s.cfg.Shape.Kinds = append(s.cfg.Shape.Kinds, schedule.Kind(k))
	}
	return nil
}
