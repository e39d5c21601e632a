package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/hub/api"
)

func nodeReadmit(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "readmit ID", Short: "Let an edge go on whose data directory was restored from a backup", Args: cobra.ExactArgs(1),
		Long: `Let an edge go on whose data directory was restored from a backup, or put back with its machine. The cluster has
newer rows of its journal than the edge: without this command it refuses the edge as a fork, since it may be a copy of a
machine that lives. The edge goes on within two minutes, from the newest row that the cluster has. A gap in its history
says so, and the hub tells it again what it shall run.

Do this for the machine that shall stay. If the machine that the copy was made of still lives, stop it first: an edge
whose former session answers is refused all the same.`,
		Example: "  skerry node status shop-18          # shows it as fenced (fork)\n  skerry node readmit shop-18",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.client()
			if err != nil {
				return err
			}
			node, err := hub.FindNode(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var answer api.NodeAnswer
			if err := hub.Write(cmd.Context(), http.MethodPut, "/v1/node/"+string(node.ID)+"/readmit", nil, &answer); err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Node %s (%s) may go on; its edge tries again within two minutes\n", shown(node.ID), node.Name)
			return err
		},
	}
}
