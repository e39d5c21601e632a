package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/fleet/validate"
)

func namespaceCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "namespace", Short: "Show, create and delete namespaces"}
	c.AddCommand(namespaceList(o), namespaceStatus(o), namespaceInspect(o), namespaceApply(o), namespaceDelete(o))
	return c
}

func namespaceList(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List namespaces", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			list, err := hub.Namespaces(cmd.Context(), client.List{})
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			t := console.Table{Heads: []string{"NAME", "DESCRIPTION"}}
			for _, n := range list {
				t.Add(n.Name, n.Description)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func (o *operator) findNamespace(cmd *cobra.Command, name string) (n fleet.Namespace, err error) {
	hub, err := o.hubClient()
	if err != nil {
		return n, err
	}
	return hub.Namespace(cmd.Context(), name)
}

func namespaceStatus(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "status NAME", Short: "Show a namespace", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := o.findNamespace(cmd, args[0])
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), n)
			}
			t := console.Table{}
			t.Add("Name", n.Name)
			t.Add("Description", n.Description)
			if c := n.Capabilities; c != nil {
				for _, list := range []struct {
					what  string
					names []string
				}{
					{"Enabled drivers", c.EnabledTaskDrivers}, {"Disabled drivers", c.DisabledTaskDrivers},
					{"Enabled network modes", c.EnabledNetworkModes}, {"Disabled network modes", c.DisabledNetworkModes},
				} {
					if len(list.names) > 0 {
						t.Add(list.what, strings.Join(list.names, ", "))
					}
				}
			}
			for _, k := range slices.Sorted(maps.Keys(n.Meta)) {
				t.Add("Meta "+k, n.Meta[k])
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
}

func namespaceInspect(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "inspect NAME", Short: "Show a namespace as JSON", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := o.findNamespace(cmd, args[0])
			if err != nil {
				return err
			}
			return console.JSON(cmd.OutOrStdout(), n)
		},
	}
}

func namespaceApply(o *operator) *cobra.Command {
	var description string
	c := &cobra.Command{
		Use: "apply NAME|FILE", Short: "Create or update a namespace", Args: cobra.ExactArgs(1),
		Long: "Make a namespace, or change it. What is named is a file in HCL (name, description, a block\n" +
			"capabilities and one of meta) or in JSON, as inspect shows it; - is the standard input. Where there\n" +
			"is no such file, it is the namespace itself that is named: then only its description changes, where\n" +
			"one is given.",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			src, err := readSpec(cmd, args[0])
			var n fleet.Namespace
			switch {
			case fleet.CodeOf(err) == fleet.CodeNotFound:
				n, err = namespaceWithDescription(cmd, hub, args[0], description)
			case err != nil:
			case cmd.Flags().Changed("description"):
				err = fleet.Errorf(fleet.CodeInvalid, "apply %s: a description is given beside a file", args[0]).WithHint("write it into the file")
			default:
				n, err = parseNamespace(args[0], src)
			}
			if err != nil {
				return err
			}
			if err := validate.Namespace(&n); err != nil {
				return err
			}
			if err := hub.ApplyNamespace(cmd.Context(), n); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Namespace %q applied\n", n.Name)
			return err
		},
	}
	c.Flags().StringVar(&description, "description", "", "what it is for, where the namespace itself is named")
	return c
}

// namespaceWithDescription is a namespace as it is, or a new one, with another description where the
// command line has one.
func namespaceWithDescription(cmd *cobra.Command, hub *client.Client, name, description string) (fleet.Namespace, error) {
	n := fleet.Namespace{Name: name}
	if err := validate.Namespace(&n); err != nil {
		return n, fleet.AsError(err).WithHint("there is no file of that name either")
	}
	stored, err := hub.Namespace(cmd.Context(), name)
	switch {
	case err == nil:
		n = stored
	case fleet.CodeOf(err) != fleet.CodeNotFound:
		return n, err
	}
	if cmd.Flags().Changed("description") {
		n.Description = description
	}
	return n, nil
}

func namespaceDelete(o *operator) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a namespace in which nothing runs", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			if err := hub.DeleteNamespace(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Namespace %q deleted\n", args[0])
			return err
		},
	}
}
