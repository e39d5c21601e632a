package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/fleet"
)

func allocChecks(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "checks ID", Short: "Show the results of the checks of an allocation's services", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := o.findAlloc(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			results, err := hub.AllocChecks(cmd.Context(), stub.ID)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), results)
			}
			list := slices.SortedFunc(maps.Values(results), func(x, y fleet.CheckResult) int {
				return cmp.Or(strings.Compare(x.Service, y.Service), strings.Compare(x.Check, y.Check), strings.Compare(x.ID, y.ID))
			})
			var t console.Table
			t.Add("Service", "Task", "Check", "Mode", "Status", "Looked", "Output")
			for _, r := range list {
				looked := "never"
				if r.Timestamp > 0 {
					looked = console.Ago(time.Now(), time.Unix(r.Timestamp, 0))
				}
				output, _, _ := strings.Cut(r.Output, "\n")
				t.Add(r.Service, r.Task, r.Check, r.Mode, r.Status, looked, output)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}
