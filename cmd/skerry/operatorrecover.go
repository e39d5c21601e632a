package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/hub"
)

// raftRecover works on a data directory, not through a hub.
func raftRecover(o *operator) *cobra.Command {
	var dataDir string
	c := &cobra.Command{
		Use: "recover", Short: "Make the hub of this machine the only voter, after most hubs were lost for good", Args: cobra.NoArgs,
		Long: `Make the hub of this machine the only voter of its cluster. This is for a cluster that has lost most of
its hubs for good: it has no leader and cannot get one. Stop the hub first, and run this on its machine.

Every entry of this hub's log counts as committed from then on. An entry that only the lost hubs had is
gone; nodes notice that the cluster went back, keep their work and replay what the cluster lost.
Never start a lost hub again with its former data directory: it would elect a leader of its own.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dataDir == "" {
				return fleet.Errorf(fleet.CodeInvalid, "recover which hub?").WithHint("name its data directory with --data-dir")
			}
			name, r, err := hub.Recover(dataDir, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), map[string]any{"Hub": name, "Hubs": r.Hubs, "LastIndex": r.Last})
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "Hub %s is the only voter of its cluster now. Its log ends at entry %d. Start it, then remove the lost hubs and join new ones.\n", name, r.Last)
			for _, h := range r.Hubs {
				if h.ID != name {
					console.Hint(w, "skerry operator raft remove-peer --peer-id %s", h.ID)
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the hub (required)")
	return c
}
