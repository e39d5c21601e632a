package operator

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

// TokenCommand is skerry token.
func TokenCommand(s *command.Session) *cobra.Command {
	return command.Group("token", "Create, list and revoke join tokens for nodes and hubs",
		createTokenCommand(s), listTokensCommand(s), tokenStatusCommand(s), revokeTokenCommand(s))
}

func createTokenCommand(s *command.Session) *cobra.Command {
	var req api.CreateTokenRequest
	var ttl time.Duration
	var file string
	c := &cobra.Command{
		Use: "create", Short: "Create a join token, and write it to standard output or to a file", Args: cobra.NoArgs,
		Long: `Create a join token. The hubs keep only a hash of it, so this is the only time that it is shown: without --out it is
written to standard output, with --out to a file that only its owner can read.

With --node-pool and --site every node that the token admits is in that pool and at that site, whatever it names itself.`,
		RunE: s.Run(func(c *command.Call) error {
			if ttl != 0 {
				req.TTL = ttl.String()
			}
			made, err := c.Hub.CreateJoinToken(c.Context(), req)
			if err != nil {
				return err
			}
			return writeToken(c.Out, made, file)
		}),
	}
	f := c.Flags()
	f.StringVar(&req.Role, "role", fleet.RoleEdge, "what it admits: edge, which is a node, or hub")
	f.StringVar(&req.NodePool, "node-pool", "", "node pool of the nodes that it admits (default: the one that each names)")
	f.StringVar(&req.Site, "site", "", "site of the nodes that it admits (default: the one that each names)")
	f.Uint64Var(&req.MaxUses, "uses", 0, "how many machines it admits (default: any number)")
	f.DurationVar(&ttl, "ttl", 24*time.Hour, "time until it expires; 0: it never does")
	f.StringVar(&req.Description, "description", "", "purpose of the token, shown in lists")
	f.StringVar(&file, "out", "", "file to write the token to, which only its owner can read; it must not exist yet")
	return c
}

// writeToken shows a new token, or puts it into a file.
func writeToken(out *console.Output, made api.CreatedToken, file string) error {
	if file == "" {
		out.Say(made, "%s", made.Token)
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, made.Token)
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "write the join token %s: %w", made.ID, err).
			WithHint("revoke it with skerry token revoke %s, and make another one", made.ID)
	}
	made.Token = ""
	out.Say(made, "Join token %s is in %s: %s", made.ID, file, tokenRules(made.JoinToken))
	return nil
}

func listTokensCommand(s *command.Session) *cobra.Command {
	list := command.Newest(command.All((*client.Client).JoinTokens), func(t api.JoinToken) int64 { return t.CreatedAt.UnixNano() })
	return &cobra.Command{
		Use: "list", Short: "List join tokens, the newest first, without their secrets", Args: cobra.NoArgs,
		RunE: command.Show(s, list, console.List[api.JoinToken]{
			None: "There are no join tokens: no machine can join.", Heads: []string{"ID", "ROLE", "POOL", "SITE", "USES", "ENDS", "DESCRIPTION"},
			Row: func(t api.JoinToken) []any {
				return []any{t.ID, strings.Join(t.Roles, ", "), t.NodePool, t.Site, tokenUses(t), tokenEnd(t), t.Description}
			},
		}.Write),
	}
}

func tokenStatusCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "status ID", Short: "Show a join token, and the machines that it admitted", Args: cobra.ExactArgs(1),
		RunE: command.Show(s, command.Named((*client.Client).JoinToken), func(out *console.Output, token api.JoinToken) {
			t := console.NewTable()
			t.Add("Token", token.ID)
			t.Add("Description", token.Description)
			t.Add("Rules", tokenRules(token))
			t.Add("Made", console.LocalTime(token.CreatedAt))
			for _, subject := range token.Admitted {
				t.Add("Admitted", subject)
			}
			out.Table(t)
		}),
	}
}

func revokeTokenCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a join token", Args: cobra.ExactArgs(1),
		Long: `Revoke a join token, by its id: no further machine can join with it. Those that joined before stay; skerry node revoke expels a node.`,
		RunE: s.Run(func(c *command.Call) error {
			answer, err := c.Hub.RevokeJoinToken(c.Context(), c.Args[0])
			if err == nil {
				c.Out.Say(answer, "Join token %s is revoked; machines that joined with it stay", c.Args[0])
			}
			return err
		}),
	}
}

// tokenRules says in one line what a token does.
func tokenRules(t api.JoinToken) string {
	parts := []string{"admits " + strings.Join(t.Roles, " and ") + "s"}
	if t.NodePool != "" {
		parts = append(parts, "to the node pool "+t.NodePool)
	}
	if t.Site != "" {
		parts = append(parts, "to the site "+t.Site)
	}
	return strings.Join(append(parts, tokenUses(t), "ends "+tokenEnd(t)), ", ")
}

func tokenUses(t api.JoinToken) string {
	if t.MaxUses == 0 {
		return fmt.Sprintf("%d used", t.Uses)
	}
	return fmt.Sprintf("%d of %d used", t.Uses, t.MaxUses)
}

func tokenEnd(t api.JoinToken) string {
	switch {
	case t.ExpiresAt == nil:
		return "never"
	case time.Now().After(*t.ExpiresAt):
		return "ended " + console.LocalTime(*t.ExpiresAt)
	}
	return console.LocalTime(*t.ExpiresAt)
}
