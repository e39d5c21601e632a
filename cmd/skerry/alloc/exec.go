package alloc

import (
	"context"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/terminal"
	"skerry/fleet"
)

func execCommand(s *command.Session) *cobra.Command {
	var f terminal.Flags
	var from anyAllocFlags
	c := &cobra.Command{
		Use: "exec ID COMMAND [ARGUMENT…]", Short: "Run a command in a task of an allocation", Args: cobra.MinimumNArgs(2),
		Example: `  skerry alloc exec --task backend 1d697ed5 sh`,
		Long: "Run a command in the folder and with the environment of a running task. The command ends\n" +
			"with the task, with the session, and when the node loses its link. The exit code is the command's.\n" +
			"On a terminal, ~. at the start of a line ends the session.",
		Annotations: map[string]string{console.Foreign: "behind the allocation"},
		RunE: s.Run(func(c *command.Call) error {
			stub, err := from.chooseAlloc(c, c.Args[0])
			if err != nil {
				return err
			}
			return f.Run(c, func(ctx context.Context, o client.ExecOptions, x fleet.Exec) (int, error) {
				return c.Hub.ExecAlloc(ctx, stub.ID, c.Args[1:], o, x)
			})
		}),
	}
	c.Flags().SetInterspersed(false)
	f.AddFlags(c, "task that the command runs in; needed where the allocation has several")
	from.addAnyAllocFlags(c)
	return c
}
