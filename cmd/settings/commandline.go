package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry/fleet"
)

// Prepare makes a whole tree of commands take long flags with one dash, too
// (-var-file for --var-file), as those of Nomad do, and say how a command is used
// where its arguments are wrong. args are what the program was given, without its
// name.
func Prepare(root *cobra.Command, args []string) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misused(cmd, err) })
	explain(root)
	root.SetArgs(twoDashes(root, args))
}

func explain(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return misused(cmd, err)
			}
			return nil
		}
	}
	if cmd.HasParent() && cmd.HasSubCommands() && !cmd.Runnable() {
		// Without one, cobra shows the help for what it does not know, as a success.
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misused(cmd, fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()))
			}
			return cmd.Help()
		}
	}
	for _, child := range cmd.Commands() {
		explain(child)
	}
}

func misused(cmd *cobra.Command, err error) error {
	return fleet.Errorf(fleet.CodeInvalid, "%v", err).
		WithHint("usage: %s; %s --help says more", cmd.UseLine(), cmd.CommandPath())
}

// twoDashes writes -name as --name where the command has a flag of that name. What
// follows "--" is left alone. Flags of a group (-addr) stand before the command's
// name, and have to be known as such for the command to be found: hence one more
// round after each that changed something.
func twoDashes(root *cobra.Command, args []string) []string {
	out := slices.Clone(args)
	for changed := true; changed; {
		changed = false
		cmd, _, err := root.Find(out)
		if err != nil {
			return out // it is said when the command is executed
		}
		for i, arg := range out {
			if arg == "--" {
				break
			}
			if isLong(cmd, arg) {
				out[i], changed = "-"+arg, true
			}
		}
	}
	return out
}

// isLong reports whether arg is a long flag of cmd with one dash.
func isLong(cmd *cobra.Command, arg string) bool {
	text, ok := strings.CutPrefix(arg, "-")
	name, _, _ := strings.Cut(text, "=")
	if !ok || len(name) < 2 || name[0] == '-' {
		return false
	}
	return cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil
}
