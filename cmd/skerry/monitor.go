package main

import (
	"context"
	"errors"
	"io"
	"skerry/client"

	"github.com/spf13/cobra"
)

func monitorCommand(o *operator) *cobra.Command {
	var q client.MonitorQuery
	var node string
	c := &cobra.Command{
		Use: "monitor", Short: "Stream the logs of a hub or a node", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			q.JSON = o.json
			if node != "" {
				n, err := hub.FindNode(cmd.Context(), node)
				if err != nil {
					return err
				}
				q.Node = n.ID
			}
			lines, err := hub.Monitor(cmd.Context(), q)
			if err != nil {
				return err
			}
			defer lines.Close()
			_, err = io.Copy(cmd.OutOrStdout(), lines)
			if errors.Is(err, context.Canceled) {
				return nil // who watched has seen enough
			}
			return err
		},
	}
	c.Flags().StringVar(&q.Level, "log-level", "info", "debug, info, warn or error")
	c.Flags().StringVar(&node, "node-id", "", "node whose logs are shown: its name, or the beginning of its id")
	c.Flags().StringVar(&q.Hub, "server-id", "", "hub that is to answer: the one that is asked, by its name")
	return c
}
