package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/chaos/cell"
	"skerry/chaos/disk"
	"skerry/chaos/real"
	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
	"skerry/cmd/console"
)

// faultsCommand runs a storm. For root it is one in a cell, with disks that forget.
func faultsCommand(s *runFlags) *cobra.Command {
	var storm real.Campaign
	var kinds []string
	var noDisks bool
	c := s.groundCommand("faults", "Break everything at random on real processes, for long, and judge it all the while",
		func(ctx context.Context, g real.Ground) (err error) {
			if storm.Kinds, err = kindsOf(kinds); err != nil {
				return err
			}
			if storm.Hubs < 1 || storm.Edges < 1 || storm.For <= 0 {
				return errors.New("a run needs some time, a hub and an edge")
			}
			storm.Ground = g
			if storm.Disks, err = canMountDisks(g, noDisks); err != nil {
				return err
			}
			if storm.Clocked, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			storm.Repeat, storm.Versions = runProvenance(storm.Seed)
			return storm.Run(ctx)
		})
	f := c.Flags()
	f.DurationVar(&storm.For, "for", 10*time.Minute, "how long")
	f.Uint64Var(&storm.Seed, "seed", uint64(time.Now().UnixNano()%1e6), "draws the faults; the same seed draws the same")
	f.IntVar(&storm.Hubs, "hubs", 3, "number of hubs")
	f.IntVar(&storm.Edges, "edges", 5, "number of edges")
	f.StringSliceVar(&kinds, "kinds", nil, "kinds of fault, a list with commas (default: all that can be done here)")
	f.BoolVar(&noDisks, "no-disks", false, "do without disks of their own, and their faults (only root can have them)")
	f.StringVar(&storm.Report, "report", "", "folder for the history and the report (default: none are written)")
	return runInCell(c)
}

// scenarioCommand plays a scenario's file on real processes.
func scenarioCommand(s *runFlags) *cobra.Command {
	var c *cobra.Command
	var report string
	c = s.groundCommand("scenario FILE", "Play a scenario of chaos/scenarios on real processes: its times are real ones",
		func(ctx context.Context, g real.Ground) error {
			plan, err := virtual.ReadSchedule(c.Flags().Arg(0))
			if err != nil {
				return err
			}
			run := real.Campaign{Ground: g, CampaignConfig: real.CampaignConfig{Scenario: &plan, Report: report}}
			run.Repeat, run.Versions = runProvenance(plan.Seed)
			return run.Run(ctx)
		})
	c.Args = cobra.ExactArgs(1)
	c.Flags().StringVar(&report, "report", "", "folder for the history and the report (default: none are written)")
	return c
}

// runProvenance is what a history says of how it was made: the command that repeats it, and
// with what.
func runProvenance(seed uint64) (repeat string, versions map[string]string) {
	repeat = "skerry-chaos " + strings.Join(os.Args[1:], " ")
	if !slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "--seed") || strings.HasPrefix(a, "-seed") }) {
		repeat += fmt.Sprintf(" --seed %d", seed)
	}
	return repeat, map[string]string{"skerry": version, "go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH}
}

// canMountDisks reports whether members have disks of their own: root's do. A run without
// them, which proves less, has to be asked for.
func canMountDisks(g real.Ground, without bool) (bool, error) {
	if without || os.Geteuid() != 0 {
		return false, nil
	}
	if err := disk.Try(g.Dir); err != nil {
		return false, fmt.Errorf("give members disks of their own (run with --no-disks to do without their faults): %w", err)
	}
	return true, nil
}

func kindsOf(names []string) ([]schedule.Kind, error) {
	var kinds []schedule.Kind
	for _, name := range names {
		if _, known := schedule.Kind(name).Info(); !known {
			return nil, fmt.Errorf("kind of fault %q: there is none of that name; there are %v", name, schedule.Kinds())
		}
		kinds = append(kinds, schedule.Kind(name))
	}
	return kinds, nil
}

// runInCell has root's run be in a cell, where its mounts, namespaces and processes
// end with it.
func runInCell(c *cobra.Command) *cobra.Command {
	play := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if runtime.GOOS != "linux" || os.Geteuid() != 0 || cell.Inside() {
			return play(cmd, args)
		}
		err := cell.Enter(cmd.Context())
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return &console.ExitError{Code: exit.ExitCode(), Err: err, Silent: true} // it was said there
		}
		return err
	}
	return c
}
