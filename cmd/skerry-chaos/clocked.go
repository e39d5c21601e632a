package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"skerry/chaos/clock"
	"skerry/chaos/observe"
	"skerry/cmd/console"
	"skerry/cmd/edged"
	"skerry/cmd/hubd"
	"skerry/hub"
)

// clockedCommands returns the hidden commands hub and edge: the production daemons with a wall clock
// that follows a file (chaos/clock). This hub can also export the entries that it applies. Campaigns
// start them.
func clockedCommands() []*cobra.Command {
	var h hubd.Flags
	hub := &cobra.Command{
		Use: "hub", Short: "Run a hub whose clock is moved, and that tells what it applies", Args: cobra.NoArgs, Hidden: true,
		Example: `  skerry-chaos hub --clock clock --told told.jsonl --data-dir hub --name hub1 --bootstrap`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runExportingHub(cmd, &h) },
	}
	h.Add(hub.Flags())
	hub.Flags().String("told", "", "file in which the hub tells what it applies")
	withClock(hub, func(f clock.File) { h.Config.Now = f.Now })
	var e edged.Flags
	edge := &cobra.Command{
		Use: "edge", Short: "Run an edge whose clock is moved", Args: cobra.NoArgs, Hidden: true,
		Example: `  skerry-chaos edge --clock clock --data-dir edge --hub 127.0.0.1:4647 --token-file token`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return e.Run(cmd.Context(), version) },
	}
	e.Add(edge.Flags())
	withClock(edge, func(f clock.File) { e.Config.Now = f.Now })
	return []*cobra.Command{hub, edge}
}

// An exporting hub takes snapshots as a hub does in months, so that campaigns restart from them. It also exports what it
// applies again after a start: without snapshots that took minutes.
const snapshotEntries, trailingEntries = 1024, 256

// withClock adds the flag --clock. Before the command runs, set is called with its value if it is set.
func withClock(cmd *cobra.Command, set func(clock.File)) {
	path := cmd.Flags().String("clock", "", "file that says by how much the wall clock is moved")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *path != "" {
			set(clock.File(*path))
		}
		return console.CompleteFlags(cmd.Flags(), os.Environ())
	}
}

// runExportingHub runs a hub that exports each applied entry to the file of --told; without --told it
// runs a plain hub. If an entry cannot be exported, the hub ends with that error: readers would
// take the missing entry for inactivity.
func runExportingHub(cmd *cobra.Command, h *hubd.Flags) error {
	path, err := cmd.Flags().GetString("told")
	if err != nil || path == "" {
		return errors.Join(err, h.Run(cmd.Context(), version, cmd.OutOrStdout()))
	}
	teller, err := observe.NewEntryWriter(h.Config.Name, path)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(cmd.Context())
	defer end(nil)
	h.Config.Raft.SnapshotThreshold, h.Config.Raft.TrailingLogs = snapshotEntries, trailingEntries
	h.Config.Applied = func(a hub.Applied) {
		if err := teller.WriteEntry(a); err != nil {
			end(err)
		}
	}
	err = h.Run(ctx, version, cmd.OutOrStdout())
	if cause := context.Cause(ctx); cmd.Context().Err() == nil {
		err = errors.Join(err, cause)
	}
	return errors.Join(err, teller.Close())
}
