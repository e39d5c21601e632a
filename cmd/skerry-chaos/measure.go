package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/chaos/faultnet"
	"skerry/chaos/real"
)

// rebootCommand returns `run reboot`.
func rebootCommand(s *runFlags) *cobra.Command {
	var r real.Reboot
	c := s.groundCommand("reboot", "Reboot an edge without a link, and measure until its tasks run again, for each driver",
		func(ctx context.Context, g real.Ground) error {
			if err := checkDrivers(r.Drivers); err != nil {
				return err
			}
			if r.Boots < 1 || r.Tasks < 1 {
				return errors.New("measure reboots: at least one boot and one task are needed")
			}
			r.Ground = g
			return r.Run(ctx)
		})
	// Each driver has a fleet of its own, and a network of namespaces can be used once.
	c.PreRun = func(*cobra.Command, []string) { s.proxy = true }
	c.Example = `  skerry-chaos run reboot --boots 20
  skerry-chaos run reboot --driver raw_exec,docker --boots 5 --secrets`
	c.Flags().StringSliceVar(&r.Drivers, "driver", []string{"raw_exec"}, "drivers of the tasks, measured one after the other: "+strings.Join(real.Drivers(), ","))
	c.Flags().IntVar(&r.Boots, "boots", 20, "number of boots of each driver")
	c.Flags().IntVar(&r.Tasks, "tasks", 10, "number of tasks of each driver")
	c.Flags().BoolVar(&r.Secrets, "secrets", false, "boot in turns without and with a variable, two templates and two identities for each task, check after each boot that it has them, and compare")
	c.Flags().StringVar(&r.Table, "table", "", "file whose table is replaced by the results, such as docs/benchmarks.md")
	return c
}

// healedCommand returns `run healed`.
func healedCommand(s *runFlags) *cobra.Command {
	var h real.Healed
	c := s.groundCommand("healed", "Cut a link for a while, and measure what it costs to have the edge back",
		func(ctx context.Context, g real.Ground) error {
			h.Ground, h.Proxy = g, faultnet.NewProxy()
			h.Net, h.LocalHTTP = h.Proxy, false // the proxy counts bytes
			return h.Run(ctx)
		})
	c.Example = `  skerry-chaos run healed --cut 1m
  skerry-chaos run healed --cut 10m --allocs 100 --backoff-cap 10s`
	c.Flags().DurationVar(&h.Cut, "cut", time.Minute, "how long the link is cut")
	c.Flags().IntVar(&h.Allocs, "allocs", 10, "number of allocations")
	c.Flags().DurationVar(&h.Cap, "backoff-cap", 0, "the edge's longest back-off (default: its own)")
	return c
}

// hubKillCommand returns `run hub-kill`.
func hubKillCommand(s *runFlags) *cobra.Command {
	var k real.HubKill
	c := s.groundCommand("hub-kill", "Kill the leading hub while jobs are registered; find every acknowledged one",
		func(ctx context.Context, g real.Ground) error { k.Ground = g; return k.Run(ctx) })
	c.Example = `  skerry-chaos run hub-kill --rate 50 --duration 20s`
	c.Flags().IntVar(&k.Rate, "rate", 50, "jobs a second")
	c.Flags().DurationVar(&k.Duration, "duration", 20*time.Second, "how long jobs are registered")
	return c
}

// footprintCommand returns `footprint`.
func footprintCommand(s *runFlags) *cobra.Command {
	var f real.Footprint
	c := s.groundCommand("footprint", "Measure memory, size and writes of an idle hub and an edge with idle tasks; fail above a limit",
		func(ctx context.Context, g real.Ground) error {
			if err := checkDrivers(f.Drivers); err != nil {
				return err
			}
			if f.Idle <= 0 {
				return errors.New("measure the footprint: --idle must be more than 0")
			}
			f.Ground = g
			return f.Run(ctx)
		})
	c.PreRun = func(*cobra.Command, []string) { s.proxy = true }
	c.Example = `  skerry-chaos footprint --idle 1m
  skerry-chaos footprint --driver raw_exec,docker --table docs/benchmarks.md`
	c.Flags().StringSliceVar(&f.Drivers, "driver", []string{"raw_exec"}, "drivers of the tasks, which are divided among them: "+strings.Join(real.Drivers(), ","))
	c.Flags().DurationVar(&f.Rest, "rest", 10*time.Second, "idle time before each measurement of memory")
	c.Flags().DurationVar(&f.Settle, "settle", 3*time.Minute, "idle time before writes are counted: an edge writes the last acknowledgement of a start a minute after it")
	c.Flags().DurationVar(&f.Idle, "idle", 30*time.Minute, "how long the writes of an idle edge are counted; it writes every ten minutes, so a shorter time is not judged")
	c.Flags().StringVar(&f.Table, "table", "", "file whose table is replaced by the results, such as docs/benchmarks.md")
	return c
}

// checkDrivers returns an error for a list of drivers that is empty or has an unknown name.
func checkDrivers(names []string) error {
	for _, name := range names {
		if !slices.Contains(real.Drivers(), name) {
			return fmt.Errorf("choose drivers: there is no driver %q: the drivers are %s", name, strings.Join(real.Drivers(), ", "))
		}
	}
	if len(names) == 0 {
		return errors.New("choose drivers: --driver names none")
	}
	return nil
}

// placementCommand returns `run placement`.
func placementCommand(s *runFlags) *cobra.Command {
	var p real.Placement
	c := s.plainNetworkCommand("placement", "Start many edges at once, place one large job on them, and say how long each took, beside its limit",
		func(ctx context.Context, g real.Ground) error {
			p.Ground = g
			return p.Run(ctx)
		})
	c.Example = `  skerry-chaos run placement
  skerry-chaos run placement --edges 1000 --ready-within 0 --placed-within 0`
	f := c.Flags()
	f.IntVar(&p.Hubs, "hubs", 3, "number of hubs")
	f.IntVar(&p.Edges, "edges", 500, "number of edges")
	f.IntVar(&p.CPU, "cpu", 4000, "MHz of each edge")
	f.StringSliceVar(&p.HubFlags, "hub-flag", nil, "flag that is added to the hubs' command lines; may be repeated")
	f.IntVar(&p.Count, "count", 10000, "allocations of the job, each of 100 MHz")
	f.DurationVar(&p.ReadyWithin, "ready-within", 10*time.Second, "longest time from the start of the edges until all are ready; 0: not limited")
	f.DurationVar(&p.PlacedWithin, "placed-within", 2*time.Second, "longest time from the registration until all allocations are placed; 0: not limited")
	f.StringVar(&p.Table, "table", "", "file whose table is replaced by the results, such as docs/benchmarks.md")
	return c
}

// registrationsCommand returns `run registrations`.
func registrationsCommand(s *runFlags) *cobra.Command {
	var r real.Registrations
	c := s.plainNetworkCommand("registrations", "Register jobs at a steady rate, without and with access control, and say what each cost",
		func(ctx context.Context, g real.Ground) error {
			r.Ground = g
			return r.Run(ctx)
		})
	c.Example = `  skerry-chaos run registrations
  skerry-chaos run registrations --hubs 1 --rate 1100`
	f := c.Flags()
	f.IntVar(&r.Hubs, "hubs", 3, "number of hubs")
	f.IntVar(&r.Rate, "rate", 1000, "jobs a second")
	f.DurationVar(&r.Duration, "duration", 10*time.Second, "how long jobs are registered in each round")
	f.IntVar(&r.Rounds, "rounds", 5, "number of rounds without access control, and of rounds with it")
	f.StringVar(&r.Table, "table", "", "file whose table is replaced by the results, such as docs/benchmarks.md")
	return c
}

// rejoinCommand returns `run rejoin`.
func rejoinCommand(s *runFlags) *cobra.Command {
	var r real.Rejoin
	c := s.plainNetworkCommand("rejoin", "Bring many edges back at once, each with a history, and kill the leader while it comes in",
		func(ctx context.Context, g real.Ground) error {
			r.Ground = g
			return r.Run(ctx)
		})
	c.Example = `  skerry-chaos run rejoin
  skerry-chaos run rejoin --edges 100 --transitions 1000 --seed 17`
	f := c.Flags()
	f.IntVar(&r.Edges, "edges", 1000, "number of edges")
	f.IntVar(&r.Transitions, "transitions", 100, "rows that each edge journals while it is cut off")
	f.IntVar(&r.Allocs, "allocs", 10, "allocations of each edge")
	f.Uint64Var(&r.Seed, "seed", uint64(time.Now().UnixNano()%1e6), "draws when the leader is killed")
	f.DurationVar(&r.Cap, "backoff-cap", 0, "the edges' longest back-off (default: their own)")
	f.StringSliceVar(&r.HubFlags, "hub-flag", nil, "flag that is added to the hubs' command lines; may be repeated")
	return c
}

// plainNetworkCommand returns a subcommand on a network without proxies, for edges that live in this
// process and cut their own links.
func (s *runFlags) plainNetworkCommand(use, short string, play func(ctx context.Context, g real.Ground) error) *cobra.Command {
	c := s.groundCommand(use, short, func(ctx context.Context, g real.Ground) error {
		g.Net, g.LocalHTTP = faultnet.NewPlain(), false
		return play(ctx, g)
	})
	c.PreRun = func(*cobra.Command, []string) { s.proxy = true } // the network is replaced
	return c
}
