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

// campaignCommand returns a subcommand that calls prepare, which completes cfg, and runs the campaign.
// For root it runs in a cell, and members have their own disks.
func (s *runFlags) campaignCommand(use, short string, cfg *real.CampaignConfig, prepare func() error) *cobra.Command {
	var noDisks bool
	c := s.groundCommand(use, short, func(ctx context.Context, g real.Ground) (err error) {
		if err := prepare(); err != nil {
			return err
		}
		if cfg.Disks, err = canMountDisks(g, noDisks); err != nil {
			return err
		}
		if cfg.Clocked, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		cfg.Repeat, cfg.Versions = runProvenance(cfg.Seed)
		return real.Campaign{Ground: g, CampaignConfig: *cfg}.Run(ctx)
	})
	c.Flags().BoolVar(&noDisks, "no-disks", false, "do without disks of their own, and their faults (only root can have them)")
	c.Flags().StringVar(&cfg.Report, "report", "", "folder for the history and the report (default: none are written)")
	return runInCell(c)
}

// faultsCommand returns `run faults`, a campaign of drawn schedules.
func faultsCommand(s *runFlags) *cobra.Command {
	var cfg real.CampaignConfig
	var kinds []string
	var noContainers bool
	c := s.campaignCommand("faults", "Break everything at random on real processes, for long, and judge it all the while", &cfg,
		func() (err error) {
			if cfg.Hubs < 1 || cfg.Edges < 1 || cfg.For <= 0 {
				return errors.New("a run needs some time, a hub and an edge")
			}
			if !noContainers {
				cfg.Containers = real.ContainerDrivers()
			}
			cfg.Kinds, err = kindsOf(kinds)
			return err
		})
	c.Example = `  skerry-chaos run faults --for 10m
  skerry-chaos run faults --for 1h --seed 17 --report chaos-report
  skerry-chaos run faults --for 5m --kinds cut,edge-reboot --no-containers`
	f := c.Flags()
	f.DurationVar(&cfg.For, "for", 10*time.Minute, "how long")
	f.Uint64Var(&cfg.Seed, "seed", uint64(time.Now().UnixNano()%1e6), "draws the faults; the same seed draws the same")
	f.IntVar(&cfg.Hubs, "hubs", 3, "number of hubs")
	f.IntVar(&cfg.Edges, "edges", 5, "number of edges")
	f.BoolVar(&noContainers, "no-containers", false, "do without container daemons, their tasks and their faults (only root can have them, where dockerd or podman is installed)")
	f.StringSliceVar(&kinds, "kinds", nil, "kinds of fault, a list with commas (default: all that can be done here)")
	return c
}

// scenarioCommand returns `run scenario`, which plays the schedule of a file.
func scenarioCommand(s *runFlags) *cobra.Command {
	var c *cobra.Command
	var cfg real.CampaignConfig
	c = s.campaignCommand("scenario FILE", "Play a scenario of chaos/scenarios on real processes: its times are real ones", &cfg,
		func() error {
			plan, err := virtual.ReadSchedule(c.Flags().Arg(0))
			cfg.Scenario = &plan
			if real.UsesContainers(plan) {
				cfg.Containers = real.ContainerDrivers()
			}
			return err
		})
	c.Args = cobra.ExactArgs(1)
	c.Example = `  skerry-chaos run scenario chaos/scenarios/quick-restore.yaml`
	return c
}

// runProvenance returns, for a history, the command that repeats this run, with --seed added if the
// user gave none, and the versions of the programs.
func runProvenance(seed uint64) (repeat string, versions map[string]string) {
	repeat = "skerry-chaos " + strings.Join(os.Args[1:], " ")
	if seed != 0 && !slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "--seed") || strings.HasPrefix(a, "-seed") }) {
		repeat += fmt.Sprintf(" --seed %d", seed)
	}
	return repeat, map[string]string{"skerry": version, "go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH}
}

// canMountDisks reports whether members get their own disks: for root, unless `without` is set. It
// returns an error if root cannot mount disks: a run that proves less has to be asked for.
func canMountDisks(g real.Ground, without bool) (bool, error) {
	if without || os.Geteuid() != 0 {
		return false, nil
	}
	if err := disk.Try(g.Dir); err != nil {
		return false, fmt.Errorf("give members disks of their own (run with --no-disks to do without their faults): %w", err)
	}
	return true, nil
}

// kindsOf converts names to kinds of fault, or returns an error for an unknown one.
func kindsOf(names []string) ([]schedule.Kind, error) {
	var kinds []schedule.Kind
	for _, name := range names {
		if _, known := schedule.Kind(name).Info(); !known {
			return nil, fmt.Errorf("choose the kinds of fault: there is no kind %q; the kinds are %v", name, schedule.Kinds())
		}
		kinds = append(kinds, schedule.Kind(name))
	}
	return kinds, nil
}

// runInCell makes the command run in a cell for root on Linux, so that its mounts, namespaces and
// processes end with it. For others it changes nothing.
func runInCell(c *cobra.Command) *cobra.Command {
	play := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if runtime.GOOS != "linux" || os.Geteuid() != 0 || cell.Inside() {
			return play(cmd, args)
		}
		err := cell.Enter(cmd.Context())
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return &console.ExitError{Code: exit.ExitCode(), Err: err, Silent: true} // the run in the cell has printed the error
		}
		return err
	}
	return c
}
