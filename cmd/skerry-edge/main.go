// Command skerry-edge is the edge daemon alone, small, for remote hardware. It has the
// flags of skerry edge, and the commands of skerry local.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"skerry/cmd/console"
	"skerry/cmd/edged"
	"skerry/cmd/skerry/local"
	"skerry/drivers/builtin"
)

// version is set when the program is linked.
var version = "dev"

func main() {
	builtin.RunTaskProcess() // a process of a task has no use for anything below
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	cmd := edged.Command("skerry-edge", version)
	cmd.Version = version
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(local.Command(), local.StoreCommand())
	console.Prepare(cmd, os.Args[1:])
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(console.Fail(os.Stderr, "skerry-edge", err))
	}
}
