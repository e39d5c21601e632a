package node

import (
	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
)

// heldCommand is skerry fleet held.
func heldCommand(s *command.Session) *cobra.Command {
	list := command.Newest(command.All((*client.Client).Held), func(a api.HeldAlloc) int64 { return a.Held.Since })
	return &cobra.Command{
		Use: "held", Short: "List the allocations that people on site keep stopped, the newest first", Args: cobra.NoArgs,
		Example: `  skerry fleet held`,
		Long: `List the allocations that people on site keep stopped: where, since when by the node's clock, by whom and why.
Only 'skerry local start' on the node starts them, or a newer version of a job whose local_control block says so.`,
		RunE: command.Show(s, list, console.List[api.HeldAlloc]{
			None: "Nobody on site keeps an allocation stopped.", Heads: []string{"ID", "ALLOCATION", "VERSION", "NODE", "SITE", "SINCE", "BY", "REASON"},
			Row: func(a api.HeldAlloc) []any {
				return []any{console.ID(a.ID), a.Name, a.JobVersion, a.NodeName, a.Site, console.LocalNano(a.Held.Since), a.Held.By, a.Held.Reason}
			},
		}.Write),
	}
}
