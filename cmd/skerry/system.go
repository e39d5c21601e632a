package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func systemCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "system", Short: "Maintain the state of the hubs"}
	gc := &cobra.Command{
		Use: "gc", Short: "Run garbage collection now", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			if err := hub.CollectGarbage(cmd.Context()); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "What is over is forgotten.")
			return err
		},
	}
	c.AddCommand(gc)
	return c
}
