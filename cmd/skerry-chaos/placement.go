package main

import (
	"context"

	"github.com/spf13/cobra"

	"skerry/chaos/real"
)

func placementCommand(s *runFlags) *cobra.Command {
	var p real.Placement
	c := s.plainNetworkCommand("placement", "Start many edges at once, place one large job on them, and say how long each took",
		func(ctx context.Context, g real.Ground) error {
			p.Ground = g
			return p.Run(ctx)
		})
	f := c.Flags()
	f.IntVar(&p.Hubs, "hubs", 3, "number of hubs")
	f.IntVar(&p.Edges, "edges", 500, "number of edges")
	f.IntVar(&p.CPU, "cpu", 4000, "MHz of each edge")
	f.StringSliceVar(&p.HubFlags, "hub-flag", nil, "flag that is added to the hubs' command lines; may be repeated")
	f.IntVar(&p.Count, "count", 10000, "allocations of the job, each of 100 MHz")
	return c
}
