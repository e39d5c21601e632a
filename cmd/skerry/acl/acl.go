// Package acl has the commands of skerry acl, and skerry login. A login at an OIDC provider starts goroutines that await
// its answer, and ends them. What the package persists is the token of a login, in the file of contexts.
package acl

import (
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/spec"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/aclpolicy"
)

// Command is skerry acl.
func Command(s *command.Session) *cobra.Command {
	return command.Group("acl", "Set up access control: policies, tokens, roles, logins and site codes",
		bootstrapCommand(s), policyCommand(s), tokenCommand(s), roleCommand(s), authMethodCommand(s), bindingRuleCommand(s), siteCodeCommand(s), whyCommand(s))
}

func bootstrapCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "bootstrap [FILE]", Short: "Turn access control on, and create the first management token", Args: cobra.MaximumNArgs(1),
		Example: `  skerry acl bootstrap
  skerry acl bootstrap secret.txt`,
		Long: `Turn access control on for the whole cluster, and create the first management token. The hubs keep only a hash of its secret,
so this is the only time that it is shown. From then on every request needs a token.

FILE, or - for the standard input, has the secret to use: a UUID. Without it the hub draws one.

If the management tokens are lost: bootstrap once more. The refusal names a reset index. Write that number into the file
acl-bootstrap-reset in the data directory of the hub that you ask, and bootstrap again.`,
		RunE: s.Run(func(c *command.Call) error {
			secret := ""
			if len(c.Args) > 0 {
				src, err := spec.Read(c.InOrStdin(), c.Args[0])
				if err != nil {
					return err
				}
				secret = strings.TrimSpace(string(src))
			}
			token, err := c.Hub.BootstrapACL(c.Context(), secret)
			if err == nil {
				c.Out.Show(token, func() { writeToken(c.Out, token) })
			}
			return err
		}),
	}
}

func whyCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "why ACCESSOR CAPABILITY OBJECT", Short: "Explain why a token may do something or not", Args: cobra.ExactArgs(3),
		Example: `  skerry acl why 0f3d1ac5-5c3e-4a3b-9d4e-1f1b9a8b7c6d submit-job namespace/default
  skerry acl why 0f3d1ac5-5c3e-4a3b-9d4e-1f1b9a8b7c6d read variables/default/nomad/jobs/shop`,
		Long: `Explain why a token may do something with an object or not: which rules of which policies decide, and which rule would allow it.

OBJECT is namespace/NAME, variables/NAMESPACE/PATH, node_pool/NAME, host_volume/NAME, site/NAME, local, node, agent, operator, quota,
plugin or management.`,
		RunE: command.Show(s, func(c *command.Call) (api.ACLWhy, error) {
			return c.Hub.WhyACL(c.Context(), c.Args[0], parseObject(c.Args[1], c.Args[2]))
		}, writeWhy),
	}
}

// parseObject reads KIND[/NAME[/PATH]].
func parseObject(capability, object string) acl.Requirement {
	kind, name, _ := strings.Cut(object, "/")
	r := acl.Requirement{Kind: acl.Kind(kind), Name: name, Capability: acl.Capability(capability)}
	if r.Kind == acl.KindVariables {
		r.Name, r.Path, _ = strings.Cut(name, "/")
	}
	return r
}

func writeWhy(out *console.Output, why api.ACLWhy) {
	allowed := "no"
	if why.Allowed {
		allowed = "yes"
	}
	t := console.NewTable()
	t.Add("Token", why.AccessorID)
	t.Add("Policies", orNone(why.Policies))
	t.Add("Needs", why.Needs)
	t.Add("Allowed", allowed)
	for i, line := range why.Lines() {
		name := "Rule"
		if i == 0 {
			name = "Reason"
		}
		t.Add(name, line)
	}
	out.Table(t)
	if !why.Allowed && why.Grant != "" {
		out.Hint("this rule in a policy of the token allows it: %s", why.Grant)
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "n/a"
	}
	return strings.Join(names, ", ")
}

func policyCommand(s *command.Session) *cobra.Command {
	return command.Group("policy", "Show, create and delete policies",
		applyPolicyCommand(s), listPoliciesCommand(s), policyInfoCommand(s), ownPoliciesCommand(s), deletePolicyCommand(s))
}

func applyPolicyCommand(s *command.Session) *cobra.Command {
	var description string
	var attach fleet.JobACL
	c := &cobra.Command{
		Use: "apply NAME FILE", Short: "Create or update a policy", Args: cobra.ExactArgs(2),
		Example: `  skerry acl policy apply --description "reads jobs" readers readers.hcl
  skerry acl policy apply --namespace default --job shop --group web --task main reads-db reads-db.hcl`,
		Long: `Create or update a policy. FILE has its rules in HCL or JSON; - is the standard input.

With --job, in --namespace, the policy counts for the identities of the job's tasks; --group and --task name fewer of them.`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			src, err := spec.Read(c.InOrStdin(), c.Args[1])
			if err != nil {
				return "", err
			}
			p := fleet.ACLPolicy{Name: c.Args[0], Description: description, Rules: string(src)}
			if attach != (fleet.JobACL{}) {
				attach.Namespace = c.Namespace()
				p.JobACL = &attach
			}
			if err := aclpolicy.Check(&p); err != nil {
				return "", err
			}
			return "Successfully wrote \"" + p.Name + "\" ACL policy!", c.Hub.ApplyACLPolicy(c.Context(), p)
		}),
	}
	flags := c.Flags()
	flags.StringVar(&description, "description", "", "description of the policy")
	flags.StringVar((*string)(&attach.JobID), "job", "", "job to whose tasks' identities the policy is attached")
	flags.StringVar(&attach.Group, "group", "", "group of --job; without it all groups")
	flags.StringVar(&attach.Task, "task", "", "task of --group; without it all tasks")
	return c
}

var policyList = console.List[api.ACLPolicyStub]{
	None: "No policies found", Heads: []string{"NAME", "DESCRIPTION"},
	Row: func(p api.ACLPolicyStub) []any { return []any{p.Name, p.Description} },
}

func listPoliciesCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List policies", Args: cobra.NoArgs,
		Example: `  skerry acl policy list`,
		RunE:    command.Show(s, command.Listed((*client.Client).ACLPolicies, &client.List{}), policyList.Write),
	}
}

func ownPoliciesCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "self", Short: "List the policies of your own token", Args: cobra.NoArgs,
		Example: `  skerry acl policy self`,
		RunE:    command.Show(s, command.All((*client.Client).OwnACLPolicies), policyList.Write),
	}
}

func policyInfoCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "info NAME", Short: "Show a policy with its rules", Args: cobra.ExactArgs(1),
		Example: `  skerry acl policy info readers`,
		RunE: command.Show(s, command.Named((*client.Client).ACLPolicy), func(out *console.Output, p fleet.ACLPolicy) {
			t := console.NewTable()
			t.Add("Name", p.Name)
			t.Add("Description", p.Description)
			t.Add("Create Index", p.CreateIndex)
			t.Add("Modify Index", p.ModifyIndex)
			if at := p.JobACL; at != nil {
				t.Add("Namespace", at.Namespace)
				t.Add("Job ID", at.JobID)
				t.AddSet("Group", at.Group)
				t.AddSet("Task", at.Task)
			}
			out.Table(t)
			out.Line("\nRules\n\n%s", strings.TrimRight(p.Rules, "\n"))
		}),
	}
}

func deletePolicyCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a policy", Args: cobra.ExactArgs(1),
		Example: `  skerry acl policy delete readers`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return "Successfully deleted \"" + c.Args[0] + "\" ACL policy!", c.Hub.DeleteACLPolicy(c.Context(), c.Args[0])
		}),
	}
}
