package acl

import (
	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func bindingRuleCommand(s *command.Session) *cobra.Command {
	return command.Group("binding-rule", "Create, show and delete binding rules, which say what somebody gets who logs in",
		createBindingRuleCommand(s), updateBindingRuleCommand(s), listBindingRulesCommand(s), bindingRuleInfoCommand(s), deleteBindingRuleCommand(s))
}

func writeBindingRule(out *console.Output, r fleet.ACLBindingRule) {
	t := console.NewTable()
	t.Add("ID", r.ID)
	t.Add("Description", r.Description)
	t.Add("Auth Method", r.AuthMethod)
	t.Add("Selector", r.Selector)
	t.Add("Bind Type", r.BindType)
	t.Add("Bind Name", r.BindName)
	t.Add("Create Time", console.LocalTime(r.CreateTime))
	t.Add("Modify Time", console.LocalTime(r.ModifyTime))
	t.Add("Create Index", r.CreateIndex)
	t.Add("Modify Index", r.ModifyIndex)
	out.Table(t)
}

// bindingRuleFlags are those of create and update.
type bindingRuleFlags struct{ description, selector, bindType, bindName string }

func (f *bindingRuleFlags) addBindingRuleFlags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.description, "description", "", "description of the rule")
	flags.StringVar(&f.selector, "selector", "", `expression on the mapped claims, such as "dev" in list.groups (default: everybody)`)
	flags.StringVar(&f.bindType, "bind-type", "", "role, policy or management")
	flags.StringVar(&f.bindName, "bind-name", "", "name of the role or policy, with ${value.NAME} for mapped claims")
}

// changeRule sets what the flags name.
func (f *bindingRuleFlags) changeRule(c *command.Call, r *fleet.ACLBindingRule) {
	for name, set := range map[string]func(){
		"description": func() { r.Description = f.description }, "selector": func() { r.Selector = f.selector },
		"bind-type": func() { r.BindType = f.bindType }, "bind-name": func() { r.BindName = f.bindName },
	} {
		if c.Changed(name) {
			set()
		}
	}
}

func createBindingRuleCommand(s *command.Session) *cobra.Command {
	var f bindingRuleFlags
	var method string
	c := &cobra.Command{
		Use: "create", Short: "Create a binding rule", Args: cobra.NoArgs,
		Example: `  skerry acl binding-rule create --auth-method sso --selector "dev in list.groups" --bind-type role --bind-name deployers
  skerry acl binding-rule create --auth-method ci --bind-type policy --bind-name ci-${value.project}`,
		RunE: command.Show(s, func(c *command.Call) (fleet.ACLBindingRule, error) {
			r := fleet.ACLBindingRule{AuthMethod: method}
			f.changeRule(c, &r)
			return c.Hub.CreateBindingRule(c.Context(), r)
		}, writeBindingRule),
	}
	c.Flags().StringVar(&method, "auth-method", "", "auth method of the rule")
	f.addBindingRuleFlags(c)
	return c
}

func updateBindingRuleCommand(s *command.Session) *cobra.Command {
	var f bindingRuleFlags
	c := &cobra.Command{
		Use: "update ID", Short: "Change a binding rule", Args: cobra.ExactArgs(1),
		Example: `  skerry acl binding-rule update --description "the developers" 5b1f0a36-4e59-7d2c-9c38-0a2f5c1d7e64`,
		Long:    `Change a binding rule. What no flag names stays.`,
		RunE: command.Show(s, func(c *command.Call) (fleet.ACLBindingRule, error) {
			r, err := c.Hub.BindingRule(c.Context(), c.Args[0])
			if err != nil {
				return r, err
			}
			f.changeRule(c, &r)
			if r.BindType == fleet.ACLBindManagement && !c.Changed("bind-name") {
				r.BindName = ""
			}
			return c.Hub.UpdateBindingRule(c.Context(), r)
		}, writeBindingRule),
	}
	f.addBindingRuleFlags(c)
	return c
}

func listBindingRulesCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List binding rules", Args: cobra.NoArgs,
		Example: `  skerry acl binding-rule list`,
		RunE: command.Show(s, command.Listed((*client.Client).BindingRules, &client.List{}), console.List[api.ACLBindingRuleStub]{
			None: "No ACL binding rules found", Heads: []string{"ID", "DESCRIPTION", "AUTH METHOD"},
			Row: func(r api.ACLBindingRuleStub) []any { return []any{r.ID, r.Description, r.AuthMethod} },
		}.Write),
	}
}

func bindingRuleInfoCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "info ID", Short: "Show a binding rule", Args: cobra.ExactArgs(1),
		Example: `  skerry acl binding-rule info 5b1f0a36-4e59-7d2c-9c38-0a2f5c1d7e64`,
		RunE:    command.Show(s, command.Named((*client.Client).BindingRule), writeBindingRule),
	}
}

func deleteBindingRuleCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Delete a binding rule", Args: cobra.ExactArgs(1),
		Example: `  skerry acl binding-rule delete 5b1f0a36-4e59-7d2c-9c38-0a2f5c1d7e64`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return "Successfully deleted ACL binding rule \"" + c.Args[0] + "\"", c.Hub.DeleteBindingRule(c.Context(), c.Args[0])
		}),
	}
}
