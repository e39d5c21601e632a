package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"

	"skerry/syncproto/identity"
)

func nodeRevoke(o *operator) *cobra.Command {
	var req api.RevokeRequest
	c := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a node for good: refuse its certificate, and replace its allocations", Args: cobra.ExactArgs(1),
		Long: `Expel a node for good, such as one that was stolen. All hubs end its session at once and refuse its certificate;
it cannot renew it. Its allocations are lost, and replaced as their jobs say. What it still runs out there goes on
without anybody being able to stop it from here: node status shows it as orphaned.

This cannot be taken back. Where the machine shall come back, start it with an empty data directory and a new join
token: it will be another node. A node that was purged is revoked by its whole id.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, name := fleet.NodeID(args[0]), ""
			hub, node, err := o.findNode(cmd.Context(), args[0])
			switch {
			case err == nil:
				id, name = node.ID, " ("+node.Name+")"
			case fleet.CodeOf(err) != fleet.CodeNotFound || !identity.ValidName(fleet.RoleEdge, args[0]):
				return err
			}
			answer, err := hub.RevokeNode(cmd.Context(), id, req)
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Node %s%s is revoked\n", displayID(id), name)
			return err
		},
	}
	c.Flags().StringVar(&req.Reason, "reason", "", "why, for whoever looks at the node later")
	return c
}

func nodeRevocations(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "revocations", Short: "List the revoked nodes, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			list, err := hub.Revocations(cmd.Context())
			if err != nil {
				return err
			}
			newestFirst(list, func(r fleet.Revocation) int64 { return r.Time })
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			if len(list) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "No node was revoked.")
				return err
			}
			t := console.Table{Heads: []string{"ID", "NAME", "REVOKED", "CERTIFICATES", "REASON"}}
			for _, r := range list {
				t.Add(displayID(r.NodeID), r.Name, console.LocalTime(console.Nano(r.Time)), len(r.Serials), r.Reason)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func revokedReason(r *fleet.Revocation) string {
	if r.Reason == "" {
		return ""
	}
	return ": " + r.Reason
}

// revokedOrphansLine says what a revoked node may still run.
func revokedOrphansLine(ids []fleet.AllocID) string {
	return fmt.Sprintf("may still run %d allocations, which nobody can stop from here: %s", len(ids), firstIDs(ids))
}
