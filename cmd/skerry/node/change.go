package node

import (
	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
	"skerry/syncproto/identity"
)

// changeCommand is a command that changes a node. done is the rest of a sentence about the node after it.
func changeCommand(s *command.Session, done string, change func(*command.Call, fleet.NodeID) (api.NodeAnswer, error)) *cobra.Command {
	return &cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: s.RunNode(func(c *command.Call, node api.NodeStub) error {
			answer, err := change(c, node.ID)
			if err == nil {
				c.Out.Say(answer, "Node %s (%s) %s", console.ID(node.ID), node.Name, done)
			}
			return err
		}),
	}
}

func purgeCommand(s *command.Session) *cobra.Command {
	c := changeCommand(s, "is purged", func(c *command.Call, id fleet.NodeID) (api.NodeAnswer, error) {
		return c.Hub.PurgeNode(c.Context(), id)
	})
	c.Use, c.Short = "purge ID", "Remove a node that is gone for good, and replace its allocations"
	c.Example = `  skerry node purge shop-17`
	c.Long = "Remove the record of a node that is gone for good. Its allocations are lost, and replaced as their jobs say.\n" +
		"A node that is connected is refused: it would register again."
	return c
}

func readmitCommand(s *command.Session) *cobra.Command {
	c := changeCommand(s, "may continue; it tries again within two minutes", func(c *command.Call, id fleet.NodeID) (api.NodeAnswer, error) {
		return c.Hub.ReadmitNode(c.Context(), id)
	})
	c.Use, c.Short = "readmit ID", "Accept a node whose data directory was restored from a backup"
	c.Example = `  skerry node readmit shop-17`
	c.Long = `Accept a node whose data directory is older than it was: it was restored from a backup, or a snapshot of the whole machine
was. The cluster has newer rows of its journal than the node: without this command it refuses the node as a fork, since it
may be a copy of a machine that still runs. The node continues within two minutes, after the newest row that the cluster
has. Its history shows a gap there, and the hub sends it its allocations again.

If both machines run, the copy and the one that it was made of, stop one of them first. While one of them has a session,
the other is refused also after this command.`
	return c
}

func eligibilityCommand(s *command.Session) *cobra.Command {
	var enable, disable bool
	c := &cobra.Command{
		Use: "eligibility ID", Short: "Set whether new allocations may be placed on a node", Args: cobra.ExactArgs(1),
		Example: `  skerry node eligibility --disable shop-17`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.NodeEligibilityRequest{Eligibility: fleet.NodeIneligible}
			if enable {
				req.Eligibility = fleet.NodeEligible
			}
			return changeCommand(s, "is "+req.Eligibility+" for new work", func(c *command.Call, id fleet.NodeID) (api.NodeAnswer, error) {
				return c.Hub.SetNodeEligibility(c.Context(), id, req)
			}).RunE(cmd, args)
		},
	}
	c.Flags().BoolVar(&enable, "enable", false, "allow new allocations on the node")
	c.Flags().BoolVar(&disable, "disable", false, "allow no new allocations on the node")
	c.MarkFlagsOneRequired("enable", "disable")
	c.MarkFlagsMutuallyExclusive("enable", "disable")
	return c
}

func revokeCommand(s *command.Session) *cobra.Command {
	var req api.RevokeRequest
	c := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a node for good: refuse its certificate, and replace its allocations", Args: cobra.ExactArgs(1),
		Example: `  skerry node revoke --reason "stolen from shop 17" 3f0c9f62`,
		Long: `Expel a node for good, such as one that was stolen. All hubs end its session at once and refuse its certificate;
it cannot renew it. Its allocations are lost, and replaced as their jobs say. Its tasks may keep running there, and
nobody can stop them from here: node status shows them as orphaned.

This cannot be undone. If the machine is to come back, start it with an empty data directory and a new join
token: it will be another node. A node that was purged is revoked by its whole id.`,
		RunE: s.Run(func(c *command.Call) error {
			id, name := fleet.NodeID(c.Args[0]), ""
			node, err := c.FindNode(c.Args[0])
			switch {
			case err == nil:
				id, name = node.ID, " ("+node.Name+")"
			case fleet.CodeOf(err) != fleet.CodeNotFound || !identity.ValidName(fleet.RoleEdge, c.Args[0]):
				return err
			}
			answer, err := c.Hub.RevokeNode(c.Context(), id, req)
			if err == nil {
				c.Out.Say(answer, "Node %s%s is revoked", console.ID(id), name)
			}
			return err
		}),
	}
	c.Flags().StringVar(&req.Reason, "reason", "", "reason, shown with the node")
	return c
}

func revocationsCommand(s *command.Session) *cobra.Command {
	list := command.Newest(command.All((*client.Client).Revocations), func(r fleet.Revocation) int64 { return r.Time })
	return &cobra.Command{
		Use: "revocations", Short: "List the revoked nodes, the newest first", Args: cobra.NoArgs,
		Example: `  skerry node revocations`,
		RunE: command.Show(s, list, console.List[fleet.Revocation]{
			None: "No node was revoked.", Heads: []string{"ID", "NAME", "REVOKED", "CERTIFICATES", "REASON"},
			Row: func(r fleet.Revocation) []any {
				return []any{console.ID(r.NodeID), r.Name, console.LocalNano(r.Time), len(r.Serials), r.Reason}
			},
		}.Write),
	}
}
