package operator

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func rotateCACommand(s *command.Session) *cobra.Command {
	var grace time.Duration
	c := &cobra.Command{
		Use: "rotate", Short: "Replace the certificate authority of the cluster", Args: cobra.NoArgs,
		Example: `  skerry operator ca rotate --grace 9600h`,
		Long: "Replace the certificate authority (CA) of the cluster. Hubs and nodes take the new one over by themselves, also nodes\n" +
			"that are away now. Nodes get in with a certificate of the CA before until --grace is over, and then renew it with a\n" +
			"proof of their key. If somebody may have the key of the CA, use --grace 0s: certificates that they made are useless then.",
		RunE: s.Run(func(c *command.Call) error {
			req := api.RotateCARequest{}
			if c.Changed("grace") {
				req.Grace = grace.String()
			}
			begun, err := c.Hub.RotateCA(c.Context(), req)
			if err != nil {
				return err
			}
			c.Out.Say(begun, "The rotation to CA %d has begun (%s)", begun.Number, begun.Hash)
			c.Out.Hint("skerry operator ca status shows which hubs and nodes have it")
			return nil
		}),
	}
	c.Flags().DurationVar(&grace, "grace", 400*24*time.Hour, "how long nodes get in with a certificate of the CA that is replaced")
	return c
}

func caStatusCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the certificate authorities, and who does not have the newest one", Args: cobra.NoArgs,
		Example: `  skerry operator ca status`,
		RunE:    command.Show(s, command.All((*client.Client).CAStatus), writeCAStatus),
	}
}

func writeCAStatus(out *console.Output, s api.CAStatus) {
	t := console.NewTable("CA", "STATUS", "UNTIL", "GRACE ENDS", "HUBS", "EDGES", "CERTIFICATES", "HASH")
	for _, ca := range s.CAs {
		var grace any = "-"
		if ca.GraceEnd != nil {
			grace = *ca.GraceEnd
		}
		t.Add(ca.Number, ca.Status, ca.NotAfter, grace, len(ca.Hubs), fmt.Sprintf("%d of %d", ca.Edges, s.Edges), ca.EdgesCertified, ca.Hash)
	}
	out.Table(t)
	if s.UnderWay {
		out.Line("\nThe rotation is under way. It waits for %s.", hubNames(s.HubsMissing))
	}
	if s.EdgesMissingTotal == 0 {
		return
	}
	out.Line("\nNodes that do not have the newest CA yet, and get it with their next session (%d):", s.EdgesMissingTotal)
	missing := console.NewTable("ID", "NAME", "STATUS", "CERTIFICATE OF CA")
	for _, e := range s.EdgesMissing {
		missing.Add(fleet.Short(e.ID), e.Name, e.Status, e.CA)
	}
	out.Table(missing)
}

func hubNames(hubs []fleet.HubID) string {
	if len(hubs) == 0 {
		return "the hubs to finish"
	}
	names := make([]string, len(hubs))
	for i, hub := range hubs {
		names[i] = string(hub)
	}
	return strings.Join(names, ", ")
}
