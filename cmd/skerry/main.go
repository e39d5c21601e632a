// Command skerry is all of Skerry in one program: the hub, the edge, both at once for
// trying it out, and the operator's commands.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry/cmd/console"
	"skerry/cmd/edged"
	"skerry/cmd/hubd"
	"skerry/cmd/skerry/acl"
	"skerry/cmd/skerry/alloc"
	"skerry/cmd/skerry/audit"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/deployment"
	"skerry/cmd/skerry/eval"
	"skerry/cmd/skerry/hubcontext"
	"skerry/cmd/skerry/job"
	"skerry/cmd/skerry/local"
	"skerry/cmd/skerry/namespace"
	"skerry/cmd/skerry/node"
	"skerry/cmd/skerry/operator"
	"skerry/cmd/skerry/service"
	"skerry/cmd/skerry/variable"
	"skerry/cmd/skerry/volume"
	"skerry/drivers/builtin"
)

// version is set when the program is linked.
var version = "dev"

func main() {
	builtin.RunTaskProcess() // a process of a task has no use for anything below
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := rootCommand()
	console.Prepare(root, os.Args[1:])
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := console.Fail(os.Stderr, "skerry", err)
	if text := cmd.Annotations[console.FailsWith]; text != "" && !errors.As(err, new(*console.ExitError)) {
		if code, err = strconv.Atoi(text); err != nil {
			panic(err) // a command says so
		}
	}
	return code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "skerry", Short: "Run workloads on fleets that lose their link", Version: version,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddGroup(&cobra.Group{ID: "daemon", Title: "Daemons:"}, &cobra.Group{ID: "operator", Title: "For operators:"},
		&cobra.Group{ID: "shortcut", Title: "For short:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	agent := edged.Command("edge", version)
	agent.Example = "  skerry edge --hub 192.0.2.10:4647 --token-file join-token --data-dir /var/lib/skerry-edge --site shop-17"
	add("daemon", hubd.Command(version), agent, devCommand())
	s := &command.Session{}
	nouns := []*cobra.Command{
		job.Command(s), node.FleetCommand(s), node.Command(s), alloc.Command(s), eval.Command(s), operator.Command(s, recoverCommand(s)),
		operator.SystemCommand(s), deployment.Command(s), service.Command(s), job.ScalingCommand(s), namespace.Command(s), volume.Command(s), variable.Command(s),
		operator.MonitorCommand(s), operator.TokenCommand(s), job.ActionCommand(s), acl.Command(s), acl.LoginCommand(s), hubcontext.Command(s), audit.Command(s),
	}
	short := shortcuts(s)
	for _, c := range slices.Concat(nouns, short) {
		s.AddFlags(c)
	}
	add("operator", nouns...)
	add("shortcut", short...)
	s.AddCompletions(root, "")
	add("operator", local.Command())
	root.AddCommand(versionCommand())
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "address" { // as Nomad's commands call it
			name = "addr"
		}
		return pflag.NormalizedName(name)
	})
	return root
}

func versionCommand() *cobra.Command {
	var out console.Output
	c := &cobra.Command{
		Use: "version", Short: "Show the version", Args: cobra.NoArgs,
		Example: `  skerry version
  skerry version --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.Open(cmd.OutOrStdout()); err != nil {
				return err
			}
			v := struct{ Version, Go, System string }{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			out.Say(v, "skerry %s (%s, %s)", v.Version, v.Go, v.System)
			return out.Close(nil)
		},
	}
	out.AddJSONFlag(c.Flags())
	return c
}
