package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
)

func operatorCommand(o *operator) *cobra.Command {
	group := func(use, short string, children ...*cobra.Command) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short}
		c.AddCommand(children...)
		return c
	}
	return group("operator", "Manage the hubs",
		group("raft", "Show and change the Raft configuration", raftPeers(o), raftTransfer(o), raftRemove(o), raftRecover(o)),
		group("autopilot", "Show the health of the hubs", autopilotHealth(o)),
		group("scheduler", "Show and change the scheduler configuration", schedulerGet(o), schedulerSet(o)),
		group("snapshot", "Save, inspect and restore snapshots of the cluster's state", snapshotSave(o), snapshotRestore(o), snapshotInspect(o)),
	)
}

func raftPeers(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list-peers", Short: "List the hubs of the Raft configuration", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			answer, err := hub.RaftConfiguration(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			t := console.Table{Heads: []string{"NODE", "ADDRESS", "STATE", "VOTER"}}
			for _, s := range answer.Servers {
				role := "follower"
				if s.Leader {
					role = "leader"
				}
				t.Add(s.Node, s.Address, role, strconv.FormatBool(s.Voter))
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func raftTransfer(o *operator) *cobra.Command {
	var peer client.HubRef
	c := &cobra.Command{
		Use: "transfer-leadership", Short: "Transfer leadership to another hub", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			done, err := hub.TransferLeadership(cmd.Context(), peer)
			if err != nil {
				return err
			}
			to := "another hub"
			if done.To != "" {
				to = "hub " + string(done.To)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Hub %s hands the lead over to %s\n", done.From, to)
			return err
		},
	}
	hubFlags(c, &peer)
	return c
}

func raftRemove(o *operator) *cobra.Command {
	var peer client.HubRef
	c := &cobra.Command{
		Use: "remove-peer", Short: "Remove a hub that is gone for good from the Raft configuration", Args: cobra.NoArgs,
		Long: "Remove a hub that is gone for good from the Raft configuration. Stop it first: one that starts again joins again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			if err := hub.RemoveRaftPeer(cmd.Context(), peer); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Hub %s%s is removed\n", peer.ID, peer.Address)
			return err
		},
	}
	hubFlags(c, &peer)
	return c
}

// hubFlags adds the flags that name a hub.
func hubFlags(c *cobra.Command, hub *client.HubRef) {
	c.Flags().StringVar(&hub.ID, "peer-id", "", "the hub's `id`")
	c.Flags().StringVar(&hub.Address, "peer-address", "", "or its `address`, as list-peers shows it")
}

func autopilotHealth(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Show the health of each hub, and how many may fail", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			h, err := hub.AutopilotHealth(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), h)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "Healthy            %t\nFailure tolerance  %d\nLeader             %s\n\n", h.Healthy, h.FailureTolerance, h.Leader)
			t := console.Table{Heads: []string{"NAME", "ADDRESS", "GOSSIP", "ANSWERS IN", "TERM", "INDEX", "VOTER", "HEALTHY"}}
			for _, s := range h.Servers {
				t.Add(s.Name, s.Address, s.SerfStatus, s.LastContact, s.LastTerm, s.LastIndex, strconv.FormatBool(s.Voter), strconv.FormatBool(s.Healthy))
			}
			return t.Write(w)
		},
	}
}
