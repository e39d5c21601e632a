package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"skerry/cmd/skerry/command"
	"skerry/fleet"
	"skerry/hub"
)

// recoverCommand works on a data directory, not through a hub.
func recoverCommand(s *command.Session) *cobra.Command {
	var dataDir string
	c := &cobra.Command{
		Use: "recover", Short: "Make the hub of this machine the only voter, after most hubs were lost for good", Args: cobra.NoArgs,
		Example: `  skerry operator raft recover --data-dir /var/lib/skerry`,
		Long: `Make the hub of this machine the only voter of its cluster. This is for a cluster that has lost most of
its hubs for good: it has no leader and cannot get one. Stop the hub first, and run this on its machine.

Every entry of this hub's log counts as committed from then on. An entry that only the lost hubs had is
gone; nodes notice that the cluster went back, keep their work and replay what the cluster lost.
Never start a lost hub again with its former data directory: it would elect a leader of its own.`,
		RunE: s.RunOffline(func(c *command.Call) error {
			if dataDir == "" {
				return fleet.Errorf(fleet.CodeInvalid, "recover a hub: no data directory is given").WithHint("name its data directory with --data-dir")
			}
			name, r, err := hub.Recover(dataDir, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
			if err != nil {
				return err
			}
			c.Out.Show(map[string]any{"Hub": name, "Hubs": r.Hubs, "LastIndex": r.Last}, func() {
				c.Out.Line("Hub %s is the only voter of its cluster now. Its log ends at entry %d. Start it, then remove the lost hubs and join new ones.", name, r.Last)
				for _, h := range r.Hubs {
					if h.ID != name {
						c.Out.Hint("skerry operator raft remove-peer --peer-id %s", h.ID)
					}
				}
			})
			return nil
		}),
	}
	c.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the hub (required)")
	return c
}
