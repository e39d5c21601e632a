package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"
)

func operatorCommand(o *operator) *cobra.Command {
	group := func(use, short string, children ...*cobra.Command) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short}
		c.AddCommand(children...)
		return c
	}
	return group("operator", "Look after the hubs themselves",
		group("raft", "Show and change how the hubs agree", raftPeers(o), raftTransfer(o), raftRemove(o), raftRecover(o)),
		group("autopilot", "Show how the hubs are", autopilotHealth(o)),
		group("scheduler", "Show and change how jobs are scheduled", schedulerGet(o), schedulerSet(o)),
		group("snapshot", "Save the cluster's state, look at what was saved, and restore it", snapshotSave(o), snapshotRestore(o), snapshotInspect(o)),
	)
}

func raftPeers(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list-peers", Short: "List the hubs that the log is replicated to", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Servers []api.RaftServer
				Index   fleet.Index
			}
			if err := o.readFromHub(cmd, "/v1/operator/raft/configuration", &answer); err != nil {
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
	q := url.Values{}
	c := &cobra.Command{
		Use: "transfer-leadership", Short: "Have another hub lead, or one that is named", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var done struct{ From, To fleet.HubID }
			if err := o.sendChange(cmd, http.MethodPut, "/v1/operator/raft/transfer-leadership", q, &done); err != nil {
				return err
			}
			to := "another hub"
			if done.To != "" {
				to = "hub " + string(done.To)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "Hub %s hands the lead over to %s\n", done.From, to)
			return err
		},
	}
	hubFlags(c, q)
	return c
}

func raftRemove(o *operator) *cobra.Command {
	q := url.Values{}
	c := &cobra.Command{
		Use: "remove-peer", Short: "Take the vote of a hub that is gone for good", Args: cobra.NoArgs,
		Long: "Take the vote of a hub that is gone for good. Stop it first: one that starts again joins again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var done struct{}
			if err := o.sendChange(cmd, http.MethodDelete, "/v1/operator/raft/peer", q, &done); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "Hub %s%s is removed\n", q.Get("id"), q.Get("address"))
			return err
		},
	}
	hubFlags(c, q)
	return c
}

// hubFlags name a hub in a request's parameters.
func hubFlags(c *cobra.Command, q url.Values) {
	set := func(key string) func(string) error {
		return func(s string) error { q.Set(key, s); return nil }
	}
	c.Flags().Func("peer-id", "the hub's `id`", set("id"))
	c.Flags().Func("peer-address", "or its `address`, as list-peers shows it", set("address"))
}

func (o *operator) sendChange(cmd *cobra.Command, method, path string, q url.Values, out any) error {
	hub, err := o.hubClient()
	if err != nil {
		return err
	}
	return hub.Write(cmd.Context(), method, path+"?"+q.Encode(), nil, out)
}

// readFromHub reads from the hub.
func (o *operator) readFromHub(cmd *cobra.Command, path string, out any) error {
	hub, err := o.hubClient()
	if err != nil {
		return err
	}
	_, err = hub.Read(cmd.Context(), path, url.Values{"report": {"true"}}, out)
	return err
}

func autopilotHealth(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Show how each hub is, and how many may be lost", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var h api.HealthAnswer
			if err := o.readFromHub(cmd, "/v1/operator/autopilot/health", &h); err != nil {
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
