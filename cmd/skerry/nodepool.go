package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

func nodePool(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "pool", Short: "Show, create and delete node pools"}
	c.AddCommand(poolList(o), poolInfo(o), poolNodes(o), poolJobs(o), poolApply(o), poolInit(o), poolDelete(o))
	return c
}

func poolList(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List node pools", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			list, err := hub.NodePools(cmd.Context(), client.List{})
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			t := console.Table{Heads: []string{"NAME", "DESCRIPTION"}}
			for _, p := range list {
				t.Add(p.Name, p.Description)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func poolInfo(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "info NAME", Short: "Show a node pool and its rules", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			p, err := hub.NodePool(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), p)
			}
			t := console.Table{}
			t.Add("Name", p.Name)
			t.Add("Description", p.Description)
			absent := p.DefaultDisconnect
			if absent == "" {
				absent = fleet.DisconnectKeep
			}
			t.Add("Without a disconnect block", absent)
			if p.HeartbeatTTL > 0 {
				t.Add("Heartbeat TTL", p.HeartbeatTTL)
			}
			if s := p.SchedulerConfiguration; s != nil && s.SchedulerAlgorithm != "" {
				t.Add("Scheduler algorithm", s.SchedulerAlgorithm)
			}
			if s := p.SchedulerConfiguration; s != nil && s.MemoryOversubscriptionEnabled != nil {
				t.Add("Memory oversubscription", *s.MemoryOversubscriptionEnabled)
			}
			for _, k := range slices.Sorted(maps.Keys(p.Meta)) {
				t.Add("Meta "+k, p.Meta[k])
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func poolNodes(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "nodes NAME", Short: "List the nodes of a pool", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			list, err := hub.NodePoolNodes(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			t := console.Table{Heads: []string{"ID", "NAME", "DATACENTER", "CLASS", "ELIGIBLE", "STATUS"}}
			for _, n := range list {
				t.Add(displayID(n.ID), n.Name, n.Datacenter, n.NodeClass, n.SchedulingEligibility != fleet.NodeIneligible, n.Status)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func poolJobs(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "jobs NAME", Short: "List the jobs of a pool", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			list, err := hub.NodePoolJobs(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			t := console.Table{Heads: o.withNamespaceHead("ID", "TYPE", "PRIORITY", "STATUS")}
			for _, j := range list {
				t.Add(o.withNamespaceCell(j.Namespace, j.ID, j.Type, j.Priority, j.Status)...)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func poolDelete(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a node pool without nodes", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			if err := hub.DeleteNodePool(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Node pool %q deleted\n", args[0])
			return err
		},
	}
}
