package local

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skerry/cmd/console"
	"skerry/edge/local"
	"skerry/fleet"
)

func (f *localFlags) execCommand() *cobra.Command {
	var req local.ExecRequest
	c := &cobra.Command{
		Use: "exec ALLOC COMMAND [ARG]...", Short: "Run a command in the environment of a task", Args: cobra.MinimumNArgs(2),
		Long: `Run a command in the environment of a running task: with its files, variables and isolation. The job must allow
exec on site. The journal records who ran which program (skerry local history). The exit code is the command's.`,
		Example: `  skerry local exec --data-dir /var/lib/skerry-edge --task backend 1d697ed5 ls -l`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			req.Alloc, req.Command = fleet.AllocID(args[0]), args[1:]
			x := fleet.Exec{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
			if req.TTY {
				restore, size, err := takeTerminal(os.Stdin)
				if err != nil {
					return err
				}
				defer restore()
				sizes := make(chan fleet.TerminalSize, 1)
				sizes <- size
				x.Sizes = sizes
			}
			code, err := edge.Exec(ctx, req, x)
			if err == nil && code != 0 {
				return &console.ExitError{Code: code, Err: fmt.Errorf("the command ended with exit code %d", code), Silent: true}
			}
			return err
		}),
	}
	c.Flags().StringVar(&req.Task, "task", "", "task in whose environment the command runs; needed if the allocation has several")
	c.Flags().BoolVarP(&req.TTY, "tty", "t", false, "give the command a terminal of its own, as an interactive shell needs it")
	c.Flags().SetInterspersed(false) // flags behind ALLOC are the command's
	return c
}

// takeTerminal passes every key of a terminal to the command, until restore is called. It returns the terminal's size.
func takeTerminal(tty *os.File) (restore func(), size fleet.TerminalSize, err error) {
	fd := int(tty.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, size, fleet.Errorf(fleet.CodeInvalid, "run a command on a terminal: the input is none: %v", err).WithHint("leave out --tty")
	}
	if columns, rows, err := term.GetSize(fd); err == nil {
		size = fleet.TerminalSize{Width: uint16(columns), Height: uint16(rows)}
	}
	return func() { _ = term.Restore(fd, before) }, size, nil
}
