// Package variable has the commands of skerry var. It starts no goroutine but one that renews the lock of skerry var
// lock, and writes only the files of skerry var init.
package variable

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

// Command is skerry var.
func Command(s *command.Session) *cobra.Command {
	return command.Group("var", "Show, store, delete and lock variables",
		listCommand(s), getCommand(s), putCommand(s), purgeCommand(s), initCommand(s), lockCommand(s))
}

func listCommand(s *command.Session) *cobra.Command {
	l := client.List{}
	format := ""
	c := &cobra.Command{
		Use: "list [PREFIX]", Short: "List variables, without their items", Args: cobra.MaximumNArgs(1),
		Example: `  skerry var list
  skerry var list --out terse app/`,
		RunE: s.Run(func(c *command.Call) error {
			if err := checkFormat(format, "table", "json", "terse", "go-template"); err != nil {
				return err
			}
			if len(c.Args) > 0 {
				l.Prefix = c.Args[0]
			}
			list, err := c.Hub.Variables(c.Context(), l)
			if err != nil {
				return err
			}
			if format == "json" || format == "go-template" {
				c.Out.JSON(list)
				return nil
			}
			c.Out.Show(list, func() { writeList(c.Out, list, format == "terse") })
			return nil
		}),
	}
	c.Flags().StringVar(&l.Filter, "filter", "", "show only the variables that an `expression` selects")
	c.Flags().IntVar(&l.PerPage, "per-page", 0, "show the first so many variables")
	addFormat(c, &format, "table, json, terse (paths alone) or go-template (with --template)")
	return c
}

func writeList(out *console.Output, list []fleet.VariableMeta, terse bool) {
	if terse {
		for _, v := range list {
			out.Line("%s", v.Path)
		}
		return
	}
	console.List[fleet.VariableMeta]{
		None: "No variables", Heads: []string{"PATH", "LOCKED", "MODIFIED"},
		Row:       func(v fleet.VariableMeta) []any { return []any{v.Path, v.Lock != nil, console.LocalNano(v.ModifyTime)} },
		Namespace: func(v fleet.VariableMeta) string { return v.Namespace },
	}.Write(out, list)
}

func getCommand(s *command.Session) *cobra.Command {
	format, item := "", ""
	c := &cobra.Command{
		Use: "get PATH", Short: "Show a variable with its items", Args: cobra.ExactArgs(1),
		Example: `  skerry var get app/db
  skerry var get --item password app/db
  skerry var get --out hcl app/db`,
		RunE: s.Run(func(c *command.Call) error {
			if err := checkFormat(format, formats...); err != nil {
				return err
			}
			v, err := c.Hub.Variable(c.Context(), c.Args[0])
			if err != nil {
				return err
			}
			if item == "" {
				return writeVariable(c.Out, v, format)
			}
			value, ok := v.Items[item]
			if !ok {
				return fleet.Errorf(fleet.CodeNotFound, "variable %s has no item %q", v.Path, item)
			}
			c.Out.Line("%s", value)
			return nil
		}),
	}
	c.Flags().StringVar(&item, "item", "", "show only the value of one item")
	addFormat(c, &format, formatHelp)
	return c
}

func purgeCommand(s *command.Session) *cobra.Command {
	index := uint64(0)
	c := &cobra.Command{
		Use: "purge PATH", Short: "Delete a variable", Args: cobra.ExactArgs(1),
		Example: `  skerry var purge app/db`,
		RunE: command.Do(s, func(c *command.Call) (string, error) {
			done := fmt.Sprintf("Variable %q deleted", c.Args[0])
			if !c.Changed("check-index") {
				return done, conflictHint(c.Hub.DeleteVariable(c.Context(), c.Args[0]))
			}
			return done, conflictHint(c.Hub.CheckAndDeleteVariable(c.Context(), c.Args[0], fleet.Index(index)))
		}),
	}
	c.Flags().Uint64Var(&index, "check-index", 0, "delete the variable only if it still has this ModifyIndex")
	return c
}

// conflictHint returns the error of a change. If the variable has another index than expected, it says what to do.
func conflictHint(err error) error {
	conflict := new(client.VariableConflict)
	if !errors.As(err, &conflict) || conflict.Variable.Lock != nil {
		return err
	}
	e := fleet.AsError(conflict.Err)
	return fleet.Errorf(e.Code, "%s", e.Message).
		WithHint("read the variable again (skerry var get %s), or give --check-index %d", conflict.Variable.Path, conflict.Variable.ModifyIndex)
}

// checkFormat returns an error if a format is not one of those known; "" is the default.
func checkFormat(format string, known ...string) error {
	for _, k := range append(known, "") {
		if format == k {
			return nil
		}
	}
	return fleet.Errorf(fleet.CodeInvalid, "the format %q is not known", format).WithHint("there are: %s", strings.Join(known, ", "))
}
