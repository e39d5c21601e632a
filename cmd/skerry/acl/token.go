package acl

import (
	"time"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func tokenCommand(s *command.Session) *cobra.Command {
	return command.Group("token", "Create, show and delete access tokens",
		createTokenCommand(s), updateTokenCommand(s), listTokensCommand(s), tokenInfoCommand(s), ownTokenCommand(s), deleteTokenCommand(s))
}

// writeToken shows a token; its secret is only in the answers that have one.
func writeToken(out *console.Output, token fleet.ACLToken) {
	t := console.NewTable()
	t.Add("Accessor ID", token.AccessorID)
	t.AddSet("Secret ID", token.SecretID)
	t.Add("Name", token.Name)
	t.Add("Type", token.Type)
	t.Add("Global", token.Global)
	t.Add("Create Time", console.LocalTime(token.CreateTime))
	t.Add("Expiry Time", tokenExpiry(token))
	t.Add("Create Index", token.CreateIndex)
	t.Add("Modify Index", token.ModifyIndex)
	t.Add("Policies", orNone(token.Policies))
	var roles []string
	for _, link := range token.Roles {
		roles = append(roles, link.Name+" ("+link.ID+")")
	}
	t.Add("Roles", orNone(roles))
	out.Table(t)
}

func tokenExpiry(token fleet.ACLToken) string {
	if token.ExpirationTime == nil {
		return "<none>"
	}
	return console.LocalTime(*token.ExpirationTime)
}

// tokenFlags are those of create and update.
type tokenFlags struct {
	name, kind        string
	policies          []string
	roleIDs, roleName []string
}

func (f *tokenFlags) addTokenFlags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.name, "name", "", "name of the token")
	flags.StringVar(&f.kind, "type", fleet.ACLTokenClient, "client, or management, which may do everything")
	flags.StringSliceVar(&f.policies, "policy", nil, "policy of the token; may be repeated or a list with commas")
	flags.StringSliceVar(&f.roleIDs, "role-id", nil, "id of a role of the token; may be repeated or a list with commas")
	flags.StringSliceVar(&f.roleName, "role-name", nil, "name of a role of the token; may be repeated or a list with commas")
}

func (f *tokenFlags) roleLinks() []fleet.ACLTokenRole {
	var links []fleet.ACLTokenRole
	for _, id := range f.roleIDs {
		links = append(links, fleet.ACLTokenRole{ID: id})
	}
	for _, name := range f.roleName {
		links = append(links, fleet.ACLTokenRole{Name: name})
	}
	return links
}

func createTokenCommand(s *command.Session) *cobra.Command {
	var f tokenFlags
	var global bool
	var ttl time.Duration
	c := &cobra.Command{
		Use: "create", Short: "Create an access token, and show its secret", Args: cobra.NoArgs,
		Example: `  skerry acl token create --name ci --policy readers --ttl 8h
  skerry acl token create --name anna --role-name operators
  skerry acl token create --name root --type management`,
		Long: `Create an access token. The hubs keep only a hash of its secret, so this is the only time that it is shown.`,
		RunE: command.Show(s, func(c *command.Call) (fleet.ACLToken, error) {
			return c.Hub.CreateACLToken(c.Context(), fleet.ACLToken{Name: f.name, Type: f.kind, Policies: f.policies, Roles: f.roleLinks(), Global: global}, ttl)
		}, writeToken),
	}
	f.addTokenFlags(c)
	c.Flags().BoolVar(&global, "global", false, "mark the token as global, as Nomad does; the mark has no effect, for there is one region")
	c.Flags().DurationVar(&ttl, "ttl", 0, "time until the token ends (default: never)")
	return c
}

func updateTokenCommand(s *command.Session) *cobra.Command {
	var f tokenFlags
	c := &cobra.Command{
		Use: "update ACCESSOR", Short: "Change the name, type, policies and roles of an access token", Args: cobra.ExactArgs(1),
		Example: `  skerry acl token update --policy readers --policy deployers 0f3d1ac5-5c3e-4a3b-9d4e-1f1b9a8b7c6d`,
		Long:    `Change an access token. What no flag names stays; --policy replaces all policies, --role-id and --role-name all roles.`,
		RunE: command.Show(s, func(c *command.Call) (fleet.ACLToken, error) {
			token, err := c.Hub.ACLToken(c.Context(), c.Args[0])
			if err != nil {
				return token, err
			}
			token.SecretID = ""
			if c.Changed("name") {
				token.Name = f.name
			}
			if c.Changed("type") {
				token.Type = f.kind
			}
			if c.Changed("policy") {
				token.Policies = f.policies
			}
			if c.Changed("role-id") || c.Changed("role-name") {
				token.Roles = f.roleLinks()
			}
			return c.Hub.UpdateACLToken(c.Context(), token)
		}, writeToken),
	}
	f.addTokenFlags(c)
	return c
}

func listTokensCommand(s *command.Session) *cobra.Command {
	list := command.Newest(command.Listed((*client.Client).ACLTokens, &client.List{}), func(t fleet.ACLToken) int64 { return t.CreateTime.UnixNano() })
	return &cobra.Command{
		Use: "list", Short: "List access tokens, the newest first, without their secrets", Args: cobra.NoArgs,
		Example: `  skerry acl token list`,
		RunE: command.Show(s, list, console.List[fleet.ACLToken]{
			None: "No tokens found", Heads: []string{"NAME", "TYPE", "GLOBAL", "ACCESSOR ID", "EXPIRES"},
			Row: func(t fleet.ACLToken) []any { return []any{t.Name, t.Type, t.Global, t.AccessorID, tokenExpiry(t)} },
		}.Write),
	}
}

func tokenInfoCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "info ACCESSOR", Short: "Show an access token, without its secret", Args: cobra.ExactArgs(1),
		Example: `  skerry acl token info 0f3d1ac5-5c3e-4a3b-9d4e-1f1b9a8b7c6d`,
		RunE:    command.Show(s, command.Named((*client.Client).ACLToken), writeToken),
	}
}

func ownTokenCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "self", Short: "Show your own access token", Args: cobra.NoArgs,
		Example: `  skerry acl token self`,
		RunE:    command.Show(s, func(c *command.Call) (fleet.ACLToken, error) { return c.Hub.ACLToken(c.Context(), "self") }, writeToken),
	}
}

func deleteTokenCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete ACCESSOR", Short: "Delete an access token", Args: cobra.ExactArgs(1),
		Example: `  skerry acl token delete 0f3d1ac5-5c3e-4a3b-9d4e-1f1b9a8b7c6d`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return "Token " + c.Args[0] + " successfully deleted", c.Hub.DeleteACLToken(c.Context(), c.Args[0])
		}),
	}
}
