package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/fleet"
)

func serviceCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "service", Short: "Show registered services"}
	c.AddCommand(serviceList(o), serviceInfo(o), serviceDelete(o))
	return c
}

func serviceList(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the reachable services", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			list, err := hub.Services(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			t := console.Table{Heads: o.withNamespaceHead("SERVICE", "TAGS")}
			for _, ns := range list {
				for _, s := range ns.Services {
					t.Add(o.withNamespaceCell(ns.Namespace, s.ServiceName, "["+strings.Join(s.Tags, ",")+"]")...)
				}
			}
			if len(t.Rows) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "There are no services that can be reached.")
				return err
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func serviceInfo(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "info NAME", Short: "Show the registrations of a service, also unreachable ones", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			list, err := hub.Service(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return fleet.Errorf(fleet.CodeNotFound, "no allocation offers service %q", args[0])
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			t := console.Table{Heads: []string{"JOB", "ADDRESS", "STATUS", "TAGS", "NODE", "ALLOC"}}
			for _, s := range list {
				address := s.Address
				if s.Port > 0 {
					address = net.JoinHostPort(s.Address, strconv.Itoa(s.Port))
				}
				t.Add(s.JobID, address, s.Status, "["+strings.Join(s.Tags, ",")+"]", displayID(s.NodeID), displayID(s.AllocID))
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func serviceDelete(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME ID", Short: "Delete a stale registration of a service", Args: cobra.ExactArgs(2),
		Long: "Delete a stale registration of a service. Registrations follow from allocations that\n" +
			"run, so there is none: of one that is there it says which allocation to stop instead.",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			if err := hub.DeleteService(cmd.Context(), args[0], args[1]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Registration %s is deleted.\n", args[1])
			return err
		},
	}
}
