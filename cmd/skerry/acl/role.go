package acl

import (
	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func roleCommand(s *command.Session) *cobra.Command {
	return command.Group("role", "Create, show and delete roles, which are names for several policies",
		createRoleCommand(s), updateRoleCommand(s), listRolesCommand(s), roleInfoCommand(s), deleteRoleCommand(s))
}

func writeRole(out *console.Output, r fleet.ACLRole) {
	t := console.NewTable()
	t.Add("ID", r.ID)
	t.Add("Name", r.Name)
	t.Add("Description", r.Description)
	t.Add("Policies", orNone(rolePolicies(r)))
	t.Add("Create Index", r.CreateIndex)
	t.Add("Modify Index", r.ModifyIndex)
	out.Table(t)
}

func rolePolicies(r fleet.ACLRole) []string {
	var names []string
	for _, p := range r.Policies {
		names = append(names, p.Name)
	}
	return names
}

// roleFlags are those of create and update.
type roleFlags struct {
	name, description string
	policies          []string
}

func (f *roleFlags) addRoleFlags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.name, "name", "", "name of the role")
	flags.StringVar(&f.description, "description", "", "description of the role")
	flags.StringSliceVar(&f.policies, "policy", nil, "policy of the role; may be repeated or a list with commas")
}

func (f *roleFlags) policyLinks() []fleet.ACLRolePolicy {
	var links []fleet.ACLRolePolicy
	for _, name := range f.policies {
		links = append(links, fleet.ACLRolePolicy{Name: name})
	}
	return links
}

func createRoleCommand(s *command.Session) *cobra.Command {
	var f roleFlags
	c := &cobra.Command{
		Use: "create", Short: "Create a role", Args: cobra.NoArgs,
		Example: `  skerry acl role create --name operators --policy readers --policy deployers`,
		RunE: command.Show(s, func(c *command.Call) (fleet.ACLRole, error) {
			return c.Hub.CreateACLRole(c.Context(), fleet.ACLRole{Name: f.name, Description: f.description, Policies: f.policyLinks()})
		}, writeRole),
	}
	f.addRoleFlags(c)
	return c
}

func updateRoleCommand(s *command.Session) *cobra.Command {
	var f roleFlags
	var noMerge bool
	c := &cobra.Command{
		Use: "update ID", Short: "Change a role", Args: cobra.ExactArgs(1),
		Example: `  skerry acl role update --policy drainers 7d0c4a3e-8a57-4c0b-a1f4-6f5f0e1d2c3b`,
		Long:    `Change a role. What no flag names stays; policies are added. With --no-merge the role is what the flags say, and nothing else.`,
		RunE: command.Show(s, func(c *command.Call) (fleet.ACLRole, error) {
			next := fleet.ACLRole{ID: c.Args[0], Name: f.name, Description: f.description, Policies: f.policyLinks()}
			if noMerge {
				return c.Hub.UpdateACLRole(c.Context(), next)
			}
			role, err := c.Hub.ACLRole(c.Context(), c.Args[0], false)
			if err != nil {
				return role, err
			}
			if c.Changed("name") {
				role.Name = next.Name
			}
			if c.Changed("description") {
				role.Description = next.Description
			}
			role.Policies = append(role.Policies, next.Policies...)
			return c.Hub.UpdateACLRole(c.Context(), role)
		}, writeRole),
	}
	f.addRoleFlags(c)
	c.Flags().BoolVar(&noMerge, "no-merge", false, "replace the role instead of adding to it")
	return c
}

func listRolesCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List roles", Args: cobra.NoArgs,
		Example: `  skerry acl role list`,
		RunE: command.Show(s, command.Listed((*client.Client).ACLRoles, &client.List{}), console.List[fleet.ACLRole]{
			None: "No ACL roles found", Heads: []string{"ID", "NAME", "DESCRIPTION", "POLICIES"},
			Row: func(r fleet.ACLRole) []any { return []any{r.ID, r.Name, r.Description, orNone(rolePolicies(r))} },
		}.Write),
	}
}

func roleInfoCommand(s *command.Session) *cobra.Command {
	var byName bool
	c := &cobra.Command{
		Use: "info ID", Short: "Show a role", Args: cobra.ExactArgs(1),
		Example: `  skerry acl role info --by-name operators`,
		RunE:    command.Show(s, func(c *command.Call) (fleet.ACLRole, error) { return c.Hub.ACLRole(c.Context(), c.Args[0], byName) }, writeRole),
	}
	c.Flags().BoolVar(&byName, "by-name", false, "the argument is the name of the role")
	return c
}

func deleteRoleCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Delete a role", Args: cobra.ExactArgs(1),
		Example: `  skerry acl role delete 7d0c4a3e-8a57-4c0b-a1f4-6f5f0e1d2c3b`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return "ACL role " + c.Args[0] + " successfully deleted", c.Hub.DeleteACLRole(c.Context(), c.Args[0])
		}),
	}
}
