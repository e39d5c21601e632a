package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"skerry/chaos/real"
)

func rejoinCommand(s *runFlags) *cobra.Command {
	var r real.Rejoin
	c := s.plainNetworkCommand("rejoin", "Bring many edges back at once, each with a history, and kill the leader while it comes in",
		func(ctx context.Context, g real.Ground) error {
			r.Ground = g
			return r.Run(ctx)
		})
	f := c.Flags()
	f.IntVar(&r.Edges, "edges", 1000, "number of edges")
	f.IntVar(&r.Transitions, "transitions", 100, "rows that each edge journals while it is cut off")
	f.IntVar(&r.Allocs, "allocs", 10, "allocations of each edge")
	f.Uint64Var(&r.Seed, "seed", uint64(time.Now().UnixNano()%1e6), "draws when the leader is killed")
	f.DurationVar(&r.Cap, "backoff-cap", 0, "the edges' longest back-off (default: their own)")
	f.StringSliceVar(&r.HubFlags, "hub-flag", nil, "flag that is added to the hubs' command lines; may be repeated")
	return c
}
