// Command skerry-chaos injects faults into whole fleets and checks Skerry's guarantees:
// `run partition` with random faults, `demo` for people, `footprint` for measurements.
//
// It also rehearses a user's jobs on a user's fleet in virtual time (`rehearse`).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"skerry/chaos/cell"
	"skerry/chaos/faultnet"
	"skerry/chaos/real"
	"skerry/chaos/virtual"
	"skerry/cmd/console"
	"skerry/drivers/builtin"
)

// version is set when the program is linked.
var version = "dev"

func main() {
	builtin.RunTaskProcess() // runs and exits if this is a process of a task
	if cell.Keeper() {
		code, err := cell.Keep()
		if err != nil {
			fmt.Fprintf(os.Stderr, "skerry-chaos: %v\n", err)
		}
		os.Exit(code)
	}
	// A worker must not wait for signals: for that the runtime moves its processor between threads
	// at random, and the run would no longer be deterministic.
	if len(os.Args) == 2 && os.Args[1] == workerCommand {
		exitOnError(virtual.Work(os.Stdin))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	root := rootCommand()
	console.Prepare(root, os.Args[1:])
	err := root.ExecuteContext(ctx)
	stop()
	exitOnError(err)
}

// exitOnError prints an error and exits with its code; nil: it returns.
func exitOnError(err error) {
	if err != nil {
		os.Exit(console.Fail(os.Stderr, "skerry-chaos", err))
	}
}

// runFlags are the flags that all subcommands on real processes share.
type runFlags struct {
	bin          string
	dir          string
	keep         bool
	netns, proxy bool
}

// rootCommand returns the command skerry-chaos with all its subcommands.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "skerry-chaos", Short: "Break a fleet, and check what it promised", Version: version,
		SilenceUsage: true, SilenceErrors: true,
	}
	s := &runFlags{}
	root.PersistentFlags().StringVar(&s.bin, "bin", "", "folder of skerry and skerry-edge (default: where this program is)")
	root.PersistentFlags().StringVar(&s.dir, "dir", "", "folder for the run's files (default: a new one)")
	root.PersistentFlags().BoolVar(&s.keep, "keep", false, "keep the run's files also where all went well")
	run := &cobra.Command{Use: "run", Short: "Run a fleet of real processes and break it"}
	run.PersistentFlags().BoolVar(&s.netns, "netns", false, "network namespaces (the default for root)")
	run.PersistentFlags().BoolVar(&s.proxy, "proxy", false, "proxies on loopback (the default for everybody else)")
	run.AddCommand(faultsCommand(s), scenarioCommand(s), partitionCommand(s), rebootCommand(s), healedCommand(s), hubKillCommand(s), rejoinCommand(s), placementCommand(s), registrationsCommand(s), runRehearsalCommand(s))
	root.AddCommand(clockedCommands()...)
	root.AddCommand(run, demoCommand(s), footprintCommand(s), mutantsCommand())
	root.AddCommand(simCommands()...)
	root.AddCommand(rehearsalCommands()...)
	root.AddCommand(pastRunCommands()...)
	return root
}

// groundCommand returns a subcommand that calls play with the run's directory, programs and network.
func (s *runFlags) groundCommand(use, short string, play func(ctx context.Context, g real.Ground) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return s.withRunFolder(func(dir string) error {
			g := real.Ground{Dir: dir, Out: cmd.OutOrStdout()}
			var err error
			if g.HubBinary, g.EdgeBinary, err = s.findPrograms(); err != nil {
				return err
			}
			if g.Net, g.LocalHTTP, err = s.chooseNetwork(); err != nil {
				return err
			}
			return play(cmd.Context(), g)
		})
	}}
}

// partitionCommand returns `run partition`, a campaign of short rounds.
func partitionCommand(s *runFlags) *cobra.Command {
	var p real.Campaign
	c := s.groundCommand("partition", "Cut links, kill hubs and edges, reboot edges without a link; check the invariants after each round",
		func(ctx context.Context, g real.Ground) error {
			if p.Rounds < 1 || p.Hubs < 1 || p.Edges < 1 {
				return errors.New("a run needs at least one round, one hub and one edge")
			}
			p.Ground = g
			return p.Run(ctx)
		})
	c.Example = `  skerry-chaos run partition --rounds 20
  skerry-chaos run partition --rounds 200 --seed 23 --hubs 5 --edges 10`
	f := c.Flags()
	f.IntVar(&p.Rounds, "rounds", 20, "how often to break and mend")
	f.Uint64Var(&p.Seed, "seed", uint64(time.Now().UnixNano()%1e6), "draws the faults; the same seed draws the same")
	f.IntVar(&p.Hubs, "hubs", 3, "number of hubs")
	f.IntVar(&p.Edges, "edges", 3, "number of edges")
	return c
}

// demoCommand returns `demo`.
func demoCommand(s *runFlags) *cobra.Command {
	var d real.Demo
	c := s.groundCommand("demo", "Three hubs, three edges: cut a link, reboot behind it, kill the leader, heal, look at the history",
		func(ctx context.Context, g real.Ground) error {
			if !slices.Contains([]string{real.AnyDriver, real.DockerDriver, real.RawExecDriver}, d.Driver) {
				return fmt.Errorf("choose the driver of the demo: there is no %q (%s, %s and %s are there)", d.Driver, real.AnyDriver, real.DockerDriver, real.RawExecDriver)
			}
			d.Ground = g
			return d.Run(ctx)
		})
	c.PreRun = func(*cobra.Command, []string) { s.proxy = true } // the hubs' HTTP API has to be reachable for skerry commands
	c.Example = `  skerry-chaos demo
  skerry-chaos demo --driver raw_exec
  skerry-chaos demo --job examples/shop.hcl`
	c.Flags().StringVar(&d.JobFile, "job", "", "job file to run (default: one of --examples)")
	c.Flags().StringVar(&d.Examples, "examples", "examples", "folder with shop.hcl and shop-docker.hcl")
	c.Flags().StringVar(&d.Driver, "driver", real.AnyDriver, "driver of the tasks: docker, raw_exec, or auto for docker if a Docker Engine answers or can be started")
	return c
}

// findPrograms returns the absolute paths of skerry and skerry-edge, or an error if one is missing.
func (s *runFlags) findPrograms() (hub, edge string, err error) {
	bin := s.bin
	if bin == "" {
		if self, err := os.Executable(); err == nil {
			bin = filepath.Dir(self)
		}
	}
	if abs, err := filepath.Abs(bin); err == nil {
		bin = abs
	}
	hub, edge = filepath.Join(bin, "skerry"), filepath.Join(bin, "skerry-edge")
	for _, program := range []string{hub, edge} {
		if _, err := os.Stat(program); err != nil {
			return "", "", fmt.Errorf("find the programs to break (--bin names their folder; `make build` makes them): %w", err)
		}
	}
	return hub, edge, nil
}

// chooseNetwork makes the network that the flags ask for: by default namespaces for root, otherwise
// proxies. The bool is the value of real.Ground.LocalHTTP.
func (s *runFlags) chooseNetwork() (faultnet.Network, bool, error) {
	if s.netns && s.proxy {
		return nil, false, errors.New("choose a network: --netns and --proxy exclude each other")
	}
	if s.netns || !s.proxy && os.Geteuid() == 0 {
		n, err := faultnet.NewNetns(fmt.Sprintf("sk%d", os.Getpid()%10_000))
		return n, true, err
	}
	return faultnet.NewProxy(), false, nil
}

// withRunFolder calls f with the run's directory. If f succeeds, it removes the directory, unless the
// user named it or asked to keep it.
func (s *runFlags) withRunFolder(f func(dir string) error) error {
	dir := s.dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "skerry-"); err != nil {
			return fmt.Errorf("make a folder for the run: %w", err)
		}
	}
	if err := f(dir); err != nil {
		return err
	}
	if s.keep || s.dir != "" {
		return nil
	}
	return os.RemoveAll(dir)
}
