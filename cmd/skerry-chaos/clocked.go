package main

import (
	"os"

	"github.com/spf13/cobra"

	"skerry/chaos/clock"
	"skerry/cmd/edged"
	"skerry/cmd/hubd"
	"skerry/cmd/settings"
)

// clocked are the daemons as production runs them, but for their wall clock, which
// goes by a file. Runs start them for machines whose clocks they move.
func clocked() []*cobra.Command {
	var h hubd.Flags
	hub := &cobra.Command{
		Use: "hub", Short: "Run a hub whose clock is moved", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return h.Run(cmd.Context(), version, cmd.OutOrStdout()) },
	}
	h.Add(hub.Flags())
	withClock(hub, func(f clock.File) { h.Config.Now = f.Now })
	var e edged.Flags
	edge := &cobra.Command{
		Use: "edge", Short: "Run an edge whose clock is moved", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.Run(cmd.Context(), version) },
	}
	e.Add(edge.Flags())
	withClock(edge, func(f clock.File) { e.Config.Now = f.Now })
	return []*cobra.Command{hub, edge}
}

// withClock adds --clock.
func withClock(cmd *cobra.Command, set func(clock.File)) {
	path := cmd.Flags().String("clock", "", "file that says by how much the wall clock is moved")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *path != "" {
			set(clock.File(*path))
		}
		return settings.Complete(cmd.Flags(), os.Environ())
	}
}
