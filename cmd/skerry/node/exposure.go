package node

import (
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
	"skerry/syncproto/identity"
)

func exposureCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "exposure ID", Short: "List what a node knew, to replace it after a theft", Args: cobra.ExactArgs(1),
		Example: `  skerry node exposure shop-17`,
		Long: `List what a node knew: the allocations that were placed on it, the variables that they may read, the identities of their
tasks, and for management tokens the site codes that it takes. No values are shown.
Revoke a stolen node first: the hubs then keep its list for good, also after the node was purged or collected. Then give every
listed variable another value, and what it stands for, such as a password: a variable is changed once its value is newer than
the revocation. The node may know the last value of a deleted variable. Revoke the listed site codes, which work on other
nodes, too.
Tell the services of an identity's audience: the hubs refuse its tokens after the revocation, others take them until they
expire. With its own key the node can sign tokens of offline identities: others must forget that key, which is no longer
published.`,
		RunE: command.Show(s, func(c *command.Call) (api.NodeExposure, error) {
			id, err := findExposedNode(c, c.Args[0])
			if err != nil {
				return api.NodeExposure{}, err
			}
			return c.Hub.NodeExposure(c.Context(), id)
		}, writeExposure),
	}
}

// findExposedNode returns the id of a node, also of one that was revoked and is gone. A token that may not list revocations
// has to name that one by its whole id.
func findExposedNode(c *command.Call, ref string) (fleet.NodeID, error) {
	node, err := c.FindNode(ref)
	switch {
	case fleet.CodeOf(err) != fleet.CodeNotFound:
		return node.ID, err
	case identity.ValidName(fleet.RoleEdge, ref):
		return fleet.NodeID(ref), nil
	}
	if revoked, err := c.Hub.FindRevocation(c.Context(), ref); fleet.CodeOf(err) != fleet.CodeNotFound {
		return revoked.NodeID, err
	}
	return "", err
}

func writeExposure(out *console.Output, e api.NodeExposure) {
	since := "connected"
	if e.Since != nil {
		since = "revoked or lost at " + console.LocalTime(*e.Since)
	}
	out.Line("Node %s  %s  %s\n", e.NodeID, e.Name, since)
	if len(e.Variables) == 0 {
		out.Line("No variable that you may list was on the node.")
	} else {
		t := console.NewTable("NAMESPACE", "VARIABLE", "CHANGED SINCE", "MODIFIED", "INDEX", "ALLOCATIONS")
		for _, v := range e.Variables {
			t.Add(exposedVariableRow(v)...)
		}
		out.Table(t)
	}
	if len(e.Identities) > 0 {
		out.Line("")
		t := console.NewTable("IDENTITY", "NAMESPACE", "JOB", "TASK", "ALLOCATION", "AUDIENCE", "TTL", "OFFLINE")
		for _, w := range e.Identities {
			t.Add(w.Name, w.Namespace, w.JobID, w.Task, fleet.Short(w.AllocID), strings.Join(w.Audience, ","), w.TTL, w.Offline)
		}
		out.Table(t)
	}
	if e.IdentityKey != "" {
		published := "no longer published"
		if e.Published {
			published = "published"
		}
		out.Line("")
		out.Line("The node's own key for offline identities, %s: %s", published, e.IdentityKey)
	}
	if len(e.SiteCodes) > 0 {
		out.Line("")
		t := console.NewTable("SITE CODE", "NAME", "SITE", "EXPIRES")
		for _, c := range e.SiteCodes {
			t.Add(c.ID, c.Name, c.Site, console.LocalTime(c.ExpirationTime))
		}
		out.Table(t)
	}
	if len(e.Allocations) == 0 {
		return
	}
	out.Line("")
	t := console.NewTable("ALLOCATION", "NAMESPACE", "JOB", "GROUP", "STATUS")
	for _, a := range e.Allocations {
		t.Add(fleet.Short(a.ID), a.Namespace, a.JobID, a.TaskGroup, a.ClientStatus)
	}
	out.Table(t)
}

// exposedVariableRow returns the cells of a variable. One that was deleted has no present version.
func exposedVariableRow(v api.ExposedVariable) []any {
	if v.Deleted {
		return []any{v.Namespace, v.Path, "deleted", "-", "-", len(v.Allocations)}
	}
	return []any{v.Namespace, v.Path, v.Changed, console.LocalTime(v.ModifyTime), v.ModifyIndex, len(v.Allocations)}
}
