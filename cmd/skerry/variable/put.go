package variable

import (
	"strings"

	"github.com/spf13/cobra"

	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/spec"
	"skerry/fleet"
	"skerry/fleet/admission"
)

func putCommand(s *command.Session) *cobra.Command {
	var in, out string
	var index uint64
	var force bool
	c := &cobra.Command{
		Use: "put [PATH] [@FILE|-] [KEY=VALUE ...]", Short: "Create or replace a variable", Args: cobra.MinimumNArgs(1),
		Example: `  skerry var put app/db user=shop password=geheim
  skerry var put --force @spec.nv.hcl
  skerry var put --check-index 0 --out json app/api key=1234`,
		Long: "Create or replace a variable. Its path and items come from a file in HCL or JSON (@FILE, or - for the standard\n" +
			"input), as skerry var init makes one and skerry var get shows one, and from the arguments, which win. A value @FILE\n" +
			"is the content of a file; \\@ begins a value that begins with @.\n\n" +
			"Without --force and --check-index the variable is stored only if nobody has changed it: it has the modify index of\n" +
			"the file, or does not exist yet.",
		RunE: s.Run(func(c *command.Call) error {
			if err := checkFormat(in, "json", "hcl"); err != nil {
				return err
			}
			if err := checkFormat(out, formats...); err != nil {
				return err
			}
			if force && c.Changed("check-index") {
				return fleet.Errorf(fleet.CodeInvalid, "store a variable: --force and --check-index exclude each other")
			}
			v, err := variableOf(c, in)
			if err != nil {
				return err
			}
			if c.Changed("check-index") {
				v.ModifyIndex = fleet.Index(index)
			}
			if v.Namespace != "" {
				c.Hub = c.Hub.In(v.Namespace)
			}
			store := c.Hub.CheckAndStoreVariable
			if force {
				store = c.Hub.StoreVariable
			}
			stored, err := store(c.Context(), v)
			if err != nil {
				return conflictHint(err)
			}
			return writeVariable(c.Out, stored, out)
		}),
	}
	c.Flags().StringVar(&in, "in", "", "`format` of the file: json or hcl (default: what it looks like)")
	c.Flags().Uint64Var(&index, "check-index", 0, "store the variable only if it has this ModifyIndex; 0: only if it does not exist")
	c.Flags().BoolVar(&force, "force", false, "store the variable whatever its ModifyIndex is")
	addFormat(c, &out, formatHelp)
	return c
}

// variableOf reads a variable from the arguments of a command: a path, a file, and items.
func variableOf(c *command.Call, format string) (fleet.Variable, error) {
	var v fleet.Variable
	read := func(name string) ([]byte, error) { return spec.Read(c.InOrStdin(), name) }
	args, path := c.Args, ""
	if !isSource(args[0]) && !strings.Contains(args[0], "=") {
		path, args = args[0], args[1:]
	}
	if len(args) > 0 && isSource(args[0]) {
		name := strings.TrimPrefix(args[0], "@")
		src, err := read(name)
		if err == nil {
			v, err = parseVariable(name, src, format)
		}
		if err != nil {
			return v, err
		}
		args = args[1:]
	}
	if v.Items == nil {
		v.Items = fleet.VariableItems{}
	}
	for _, arg := range args {
		key, value, err := parseItem(arg, read)
		if err != nil {
			return v, err
		}
		v.Items[key] = value
	}
	if path != "" {
		v.Path = path
	}
	if v.Path = strings.Trim(v.Path, " /"); v.Path == "" {
		return v, fleet.Errorf(fleet.CodeInvalid, "store a variable: neither the arguments nor the file have its path").WithHint("begin with the path: skerry var put PATH KEY=VALUE")
	}
	if err := admission.CheckVariablePath(v.Path); err != nil {
		return v, err
	}
	return v, admission.CheckVariableItems(v.Path, v.Items)
}

// isSource reports whether an argument names the file of a variable.
func isSource(arg string) bool { return arg == "-" || strings.HasPrefix(arg, "@") }

func initCommand(s *command.Session) *cobra.Command {
	format := ""
	c := &cobra.Command{
		Use: "init [FILE]", Short: "Write an example of a variable's file", Args: cobra.MaximumNArgs(1),
		Example: `  skerry var init
  skerry var init --out json spec.nv.json`,
		RunE: s.RunOffline(func(c *command.Call) error {
			if err := checkFormat(format, "hcl", "json"); err != nil {
				return err
			}
			name, text := "spec.nv.hcl", exampleHCL
			if format == "json" {
				name, text = "spec.nv.json", exampleJSON
			}
			if len(c.Args) > 0 {
				name = c.Args[0]
			}
			err := command.WriteNewFile(name, text)
			if err == nil {
				c.Out.Line("Example of a variable written to %s; store it with: skerry var put @%s", name, name)
			}
			return err
		}),
	}
	addFormat(c, &format, "hcl or json")
	return c
}

const exampleHCL = `# The path of the variable. An argument of skerry var put wins over it.
path = "path/to/variable"

# The namespace of the variable.
# namespace = "default"

# The items are encrypted. Together they have at most 64 KiB.
items {
  user     = "shop"
  password = "change me"
}
`

const exampleJSON = `{
  "Namespace": "default",
  "Path": "path/to/variable",
  "Items": {
    "user": "shop",
    "password": "change me"
  }
}
`
