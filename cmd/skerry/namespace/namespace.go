// Package namespace has the commands of skerry namespace. It starts no goroutine, and persists nothing.
package namespace

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/spec"
	"skerry/fleet"
	"skerry/fleet/admission"
)

// Command is skerry namespace.
func Command(s *command.Session) *cobra.Command {
	return command.Group("namespace", "Show, create and delete namespaces",
		listCommand(s), statusCommand(s), inspectCommand(s), applyCommand(s), deleteCommand(s))
}

func listCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List namespaces", Args: cobra.NoArgs,
		Example: `  skerry namespace list`,
		RunE: command.Show(s, command.Listed((*client.Client).Namespaces, &client.List{}), console.List[fleet.Namespace]{
			Heads: []string{"NAME", "DESCRIPTION"},
			Row:   func(n fleet.Namespace) []any { return []any{n.Name, n.Description} },
		}.Write),
	}
}

func statusCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "status NAME", Short: "Show a namespace", Args: cobra.ExactArgs(1),
		Example: `  skerry namespace status tills`,
		RunE:    command.Show(s, command.Named((*client.Client).Namespace), writeNamespace),
	}
}

func writeNamespace(out *console.Output, n fleet.Namespace) {
	t := console.NewTable()
	t.Add("Name", n.Name)
	t.Add("Description", n.Description)
	if c := n.Capabilities; c != nil {
		t.AddSet("Enabled drivers", strings.Join(c.EnabledTaskDrivers, ", "))
		t.AddSet("Disabled drivers", strings.Join(c.DisabledTaskDrivers, ", "))
		t.AddSet("Enabled network modes", strings.Join(c.EnabledNetworkModes, ", "))
		t.AddSet("Disabled network modes", strings.Join(c.DisabledNetworkModes, ", "))
	}
	t.AddMap("Meta ", n.Meta)
	out.Table(t)
}

func inspectCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "inspect NAME", Short: "Show a namespace as JSON", Args: cobra.ExactArgs(1),
		Example: `  skerry namespace inspect tills`,
		RunE:    command.Show(s, command.Named((*client.Client).Namespace), func(out *console.Output, n fleet.Namespace) { out.JSON(n) }),
	}
}

func applyCommand(s *command.Session) *cobra.Command {
	var description string
	c := &cobra.Command{
		Use: "apply NAME|FILE", Short: "Create or update a namespace", Args: cobra.ExactArgs(1),
		Example: `  skerry namespace apply --description "the tills" tills
  skerry namespace apply tills.namespace.hcl`,
		Long: "Create or update a namespace. The argument is a file in HCL (name, description, a block capabilities and a\n" +
			"block meta) or in JSON (as namespace inspect shows it); - is the standard input. If no such file exists, the\n" +
			"argument is a name: the namespace is created if it is missing, and --description sets its description.",
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			src, err := spec.Read(c.InOrStdin(), c.Args[0])
			var n fleet.Namespace
			switch {
			case fleet.CodeOf(err) == fleet.CodeNotFound:
				n, err = withDescription(c, description)
			case err != nil:
			case c.Changed("description"):
				err = fleet.Errorf(fleet.CodeInvalid, "apply %s: --description cannot be combined with a file", c.Args[0]).WithHint("write it into the file")
			default:
				n, err = parseNamespace(c.Args[0], src)
			}
			if err == nil {
				err = admission.CheckNamespace(&n)
			}
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("Namespace %q applied", n.Name), c.Hub.ApplyNamespace(c.Context(), n)
		}),
	}
	c.Flags().StringVar(&description, "description", "", "description of the namespace; allowed only if the argument is a name")
	return c
}

// withDescription is a namespace as it is, or a new one, with another description where the
// command line has one.
func withDescription(c *command.Call, description string) (fleet.Namespace, error) {
	n := fleet.Namespace{Name: c.Args[0]}
	if err := admission.CheckNamespace(&n); err != nil {
		return n, fleet.AsError(err).WithHint("no file has that name")
	}
	stored, err := c.Hub.Namespace(c.Context(), n.Name)
	switch {
	case err == nil:
		n = stored
	case fleet.CodeOf(err) != fleet.CodeNotFound:
		return n, err
	}
	if c.Changed("description") {
		n.Description = description
	}
	return n, nil
}

// parseNamespace reads a namespace's file, in HCL or JSON. It says of the first thing
// that is wrong where it is.
func parseNamespace(name string, src []byte) (fleet.Namespace, error) {
	var n fleet.Namespace
	if spec.IsJSON(src) {
		err := spec.DecodeJSON(name, src, &n)
		return n, err
	}
	body, err := spec.ParseBody(name, src)
	if err != nil {
		return n, err
	}
	if err := spec.Attributes(body, map[string]any{"name": &n.Name, "description": &n.Description, "meta": &n.Meta}); err != nil {
		return n, err
	}
	err = spec.Blocks(body, map[string]func(*hclsyntax.Body) error{
		"capabilities": func(b *hclsyntax.Body) error {
			c := &fleet.NamespaceCapabilities{}
			n.Capabilities = c
			err := spec.Attributes(b, map[string]any{
				"enabled_task_drivers": &c.EnabledTaskDrivers, "disabled_task_drivers": &c.DisabledTaskDrivers,
				"enabled_network_modes": &c.EnabledNetworkModes, "disabled_network_modes": &c.DisabledNetworkModes,
			})
			if err != nil {
				return err
			}
			return spec.Blocks(b, nil)
		},
		"meta": spec.KeyValueBlock(&n.Meta),
	})
	return n, err
}

func deleteCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a namespace that nothing uses", Args: cobra.ExactArgs(1),
		Example: `  skerry namespace delete tills`,
		Long: `Delete a namespace. It is refused while the namespace has a job that is not dead, a volume, a variable, or an allocation
whose end its node has not confirmed. The refusal names them.`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			return fmt.Sprintf("Namespace %q deleted", c.Args[0]), c.Hub.DeleteNamespace(c.Context(), c.Args[0])
		}),
	}
}
