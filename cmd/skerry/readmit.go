package main

import (
	"skerry/api"
	"skerry/client"
	"skerry/fleet"

	"github.com/spf13/cobra"
)

func nodeReadmit(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "readmit ID", Short: "Accept a node whose data directory was restored from a backup", Args: cobra.ExactArgs(1),
		Long: `Accept a node whose data directory was restored from a backup, or put back with its machine. The cluster has
newer rows of its journal than the node: without this command it refuses the node as a fork, since it may be a copy of a
machine that lives. The node goes on within two minutes, from the newest row that the cluster has. A gap in its history
says so, and the hub tells it again what it shall run.

Do this for the machine that shall stay. If the machine that the copy was made of still lives, stop it first: a node
whose former session answers is refused all the same.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.changeNode(cmd, args[0], "may go on; it tries again within two minutes", func(hub *client.Client, id fleet.NodeID) (api.NodeAnswer, error) {
				return hub.ReadmitNode(cmd.Context(), id)
			})
		},
	}
}
