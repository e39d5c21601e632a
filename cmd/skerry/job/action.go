package job

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/terminal"
	"skerry/fleet"
)

// actionFlags select the action and its allocation.
type actionFlags struct {
	terminal.Flags
	job, group, alloc string
}

// ActionCommand is skerry action, which is also skerry job action.
func ActionCommand(s *command.Session) *cobra.Command {
	var f actionFlags
	c := &cobra.Command{
		Use: "action [NAME]", Short: "Run an action of a job in an allocation, or list the job's actions", Args: cobra.MaximumNArgs(1),
		Example: `  skerry job action --job shop --group till --task backend clear-cache
  skerry action --job shop clear-cache`,
		Long: "Run an action of a job, or without NAME list its actions. An action is a command that an action block of a\n" +
			"task defines. It runs in that task, in the allocation of --alloc, or else in a running allocation of the job\n" +
			"of --job. The exit code is that of the command. On a terminal, ~. at the start of a line ends the session\n" +
			"and the command.",
		RunE: s.Run(func(c *command.Call) error {
			id, err := f.findJob(c)
			if err != nil {
				return err
			}
			actions, err := c.Hub.JobActions(c.Context(), id)
			if err != nil {
				return err
			}
			if len(c.Args) == 0 {
				list := f.filterActions(actions)
				c.Out.Show(list, func() { actionList.Write(c.Out, list) })
				return nil
			}
			if f.alloc == "" { // an allocation may run another version of the job
				if _, err := api.FindAction(id, actions, f.group, f.Task, c.Args[0]); err != nil {
					return err
				}
			}
			action := client.ActionQuery{Job: id, Action: c.Args[0], Group: f.group, Alloc: fleet.AllocID(f.alloc)}
			return f.Run(c, func(ctx context.Context, o client.ExecOptions, x fleet.Exec) (int, error) {
				return c.Hub.RunAction(ctx, action, o, x)
			})
		}),
	}
	flags := c.Flags()
	flags.StringVar(&f.job, "job", "", "job of the action (required unless --alloc is given)")
	flags.StringVar(&f.group, "group", "", "group of the action, if several have an action of that name")
	flags.StringVar(&f.alloc, "alloc", "", "allocation to run it in (default: a running one, if possible on a connected node)")
	flags.StringVar(&f.alloc, "allocation", "", "as --alloc")
	console.HideFlag(flags, "allocation")
	f.AddFlags(c, "task of the action, if several have an action of that name")
	return c
}

// findJob returns the job, and the allocation if one is named.
func (f *actionFlags) findJob(c *command.Call) (fleet.JobID, error) {
	if f.job == "" && f.alloc == "" {
		return "", fleet.Errorf(fleet.CodeInvalid, "run an action: neither a job nor an allocation is named").
			WithHint("name a job with --job, or an allocation of it with --alloc")
	}
	if f.alloc == "" {
		job, err := c.FindJob(f.job)
		return job.ID, err
	}
	stub, err := c.FindAlloc(f.alloc)
	if err != nil {
		return "", err
	}
	if f.alloc = string(stub.ID); f.job != "" && f.job != string(stub.JobID) {
		return "", fleet.Errorf(fleet.CodeInvalid, "run an action: allocation %s belongs to job %s, not to %s", console.ID(stub.ID), stub.JobID, f.job)
	}
	return stub.JobID, nil
}

// filterActions returns the actions of the named group and task.
func (f *actionFlags) filterActions(actions []api.JobAction) []api.JobAction {
	list := []api.JobAction{}
	for _, a := range actions {
		if (f.group == "" || a.TaskGroupName == f.group) && (f.Task == "" || a.TaskName == f.Task) {
			list = append(list, a)
		}
	}
	return list
}

var actionList = console.List[api.JobAction]{
	Heads: []string{"NAME", "GROUP", "TASK", "COMMAND"},
	Row: func(a api.JobAction) []any {
		return []any{a.Name, a.TaskGroupName, a.TaskName, strings.Join(append([]string{a.Command}, a.Args...), " ")}
	},
}
