package console

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
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, err) })
	addUsageErrors(root)
	root.SetArgs(withTwoDashes(root, args))
}

// withTwoDashes is what the program is given with the dashes that cobra wants. A shell that
// asks how to go on gives it the words so far, the last of which is not done yet.
func withTwoDashes(root *cobra.Command, args []string) []string {
	if n := len(args); n > 2 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		return slices.Concat(args[:1], twoDashes(root, args[1:n-1]), args[n-1:])
	}
	return twoDashes(root, args)
}

func addUsageErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError(cmd, err)
			}
			return nil
		}
	}
	if cmd.HasParent() && cmd.HasSubCommands() && !cmd.Runnable() {
		// Without one, cobra shows the help for what it does not know, as a success.
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(cmd, fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()))
			}
			return cmd.Help()
		}
	}
	for _, child := range cmd.Commands() {
		addUsageErrors(child)
	}
}

func usageError(cmd *cobra.Command, err error) error {
	return fleet.Errorf(fleet.CodeInvalid, "%w", err).
		WithHint("usage: %s; see %s --help", cmd.UseLine(), cmd.CommandPath())
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
		for i, arg := range out[:ownArgs(cmd, out)] {
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

// Foreign is the annotation of a command whose arguments behind the first one are
// another program's, and so are their flags.
const Foreign = "foreign"

// ownArgs is how many of the arguments are the command's own.
func ownArgs(cmd *cobra.Command, args []string) int {
	if _, ok := cmd.Annotations[Foreign]; !ok {
		return len(args)
	}
	left := strings.Count(cmd.CommandPath(), " ") + 1 // its names, and its first argument
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		if !isFlag {
			if left--; left == 0 {
				return i + 1
			}
			continue
		}
		name = strings.TrimPrefix(name, "-")
		f := cmd.Flag(name)
		if f == nil && len(name) == 1 {
			f = cmd.Flags().ShorthandLookup(name)
		}
		if f != nil && f.NoOptDefVal == "" {
			i++ // its value
		}
	}
	return len(args)
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
