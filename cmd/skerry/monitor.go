package main

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

func monitorCommand(o *operator) *cobra.Command {
	var level, node, server string
	c := &cobra.Command{
		Use: "monitor", Short: "Show what a hub or a node logs, as it logs it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			q := url.Values{"log_level": {level}, "log_json": {strconv.FormatBool(o.json)}, "plain": {"true"}}
			if server != "" {
				q.Set("server_id", server)
			}
			if node != "" {
				n, err := hub.FindNode(cmd.Context(), node)
				if err != nil {
					return err
				}
				q.Set("node_id", string(n.ID))
			}
			lines, err := hub.Stream(cmd.Context(), "/v1/agent/monitor", q)
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
	c.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	c.Flags().StringVar(&node, "node-id", "", "node whose logs are shown: its name, or the beginning of its id")
	c.Flags().StringVar(&server, "server-id", "", "hub that is to answer: the one that is asked, by its name")
	return c
}
