package acl

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func siteCodeCommand(s *command.Session) *cobra.Command {
	return command.Group("site-code", "Create, list and revoke codes for people on site",
		createSiteCodeCommand(s), listSiteCodesCommand(s), revokeSiteCodeCommand(s))
}

func createSiteCodeCommand(s *command.Session) *cobra.Command {
	var req api.SiteCodeRequest
	var ttl time.Duration
	c := &cobra.Command{
		Use: "create", Short: "Create a code for a person on site, and show it", Args: cobra.NoArgs,
		Example: `  skerry acl site-code create --name Ann --site "shop-*" --policy cashiers --ttl 720h`,
		Long: `Create a code with which a person on site uses 'skerry local', also without a link. The code is shown now and never again:
the hubs and the nodes keep only a hash of it. Nodes get the hash when they have a link. The 'local' blocks of the code's
policies say what the code allows: read, write, and the capability exec.

If the edge agent of a node runs with --require-site-code, everybody there but root has to give a code. On other nodes a code
is not needed: a person who gives one may do only what it allows, and the audit has that person's name.`,
		RunE: command.Show(s, func(c *command.Call) (api.CreatedSiteCode, error) {
			req.TTL = ttl.String()
			return c.Hub.CreateSiteCode(c.Context(), req)
		}, writeSiteCode),
	}
	f := c.Flags()
	f.StringVar(&req.Name, "name", "", "name of the person, which the audit shows (required)")
	f.StringVar(&req.Site, "site", "", "site whose nodes take the code, or a glob such as shop-* (required)")
	f.StringVar(&req.NodePool, "node-pool", "*", "node pool of the nodes that take the code, or a glob")
	f.StringSliceVar(&req.Policies, "policy", nil, "policy of the code; may be repeated or a list with commas (required)")
	f.DurationVar(&ttl, "ttl", 720*time.Hour, "time until the code ends, at most 17520h")
	return c
}

func writeSiteCode(out *console.Output, made api.CreatedSiteCode) {
	t := console.NewTable()
	t.Add("Site Code", made.Code)
	t.Add("ID", made.ID)
	t.Add("Name", made.Name)
	t.Add("Site", made.Site)
	t.Add("Node Pool", made.NodePool)
	t.Add("Policies", orNone(made.Policies))
	t.Add("Expiry Time", console.LocalTime(made.ExpirationTime))
	out.Table(t)
}

func listSiteCodesCommand(s *command.Session) *cobra.Command {
	list := command.Newest(command.Listed((*client.Client).SiteCodes, &client.List{}), func(c fleet.SiteCode) int64 { return c.CreateTime.UnixNano() })
	return &cobra.Command{
		Use: "list", Short: "List the codes of people on site, the newest first, without their secrets", Args: cobra.NoArgs,
		Example: `  skerry acl site-code list`,
		RunE: command.Show(s, list, console.List[fleet.SiteCode]{
			None: "No site codes found", Heads: []string{"ID", "NAME", "SITE", "NODE POOL", "POLICIES", "EXPIRES"},
			Row: func(c fleet.SiteCode) []any {
				return []any{c.ID, c.Name, c.Site, c.NodePool, strings.Join(c.Policies, ", "), siteCodeEnd(c)}
			},
		}.Write),
	}
}

func siteCodeEnd(c fleet.SiteCode) string {
	switch {
	case c.RevokeTime != nil:
		return "revoked " + console.LocalTime(*c.RevokeTime)
	case !c.IsValid(time.Now()):
		return "ended " + console.LocalTime(c.ExpirationTime)
	}
	return console.LocalTime(c.ExpirationTime)
}

func revokeSiteCodeCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke the code of a person on site", Args: cobra.ExactArgs(1),
		Example: `  skerry acl site-code revoke k7m2`,
		Long:    `Revoke a site code, by its id. Nodes forget it when they have a link: until then, one that is away still takes it.`,
		RunE: s.Run(func(c *command.Call) error {
			err := c.Hub.RevokeSiteCode(c.Context(), c.Args[0])
			if err == nil {
				c.Out.Say(struct{ ID string }{c.Args[0]}, "Site code %s is revoked; nodes forget it when they have a link.", c.Args[0])
			}
			return err
		}),
	}
}
