package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// actionFlags say where an action runs.
type actionFlags struct {
	execFlags
	job, group, alloc string
}

func actionCommand(o *operator) *cobra.Command {
	var f actionFlags
	c := &cobra.Command{
		Use: "action [NAME]", Short: "Run an action of a job in an allocation, or list the job's actions", Args: cobra.MaximumNArgs(1),
		Long: "Run an action, which is a command that the job names in an action block, where its task runs: in an\n" +
			"allocation, or in any of the job's that runs within reach. Its exit code is the command's.\n" +
			"Without a name it lists the job's actions. On a terminal ~. at the start of a line leaves the command.",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, id, err := f.findJobAndAlloc(cmd, o)
			if err != nil {
				return err
			}
			actions, err := hub.JobActions(cmd.Context(), id)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return o.showActions(cmd.OutOrStdout(), f.filterActions(actions))
			}
			if f.alloc == "" { // an allocation may run another version of the job
				if _, err := fleet.FindAction(id, actions, f.group, f.task, args[0]); err != nil {
					return err
				}
			}
			action := client.ActionQuery{Job: id, Action: args[0], Group: f.group, Alloc: fleet.AllocID(f.alloc)}
			return f.runExec(cmd, func(ctx context.Context, o client.ExecOptions, x fleet.Exec) (int, error) {
				return hub.RunAction(ctx, action, o, x)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.job, "job", "", "the job; with an allocation it need not be named")
	flags.StringVar(&f.group, "group", "", "the group; needed where several have an action of that name")
	flags.StringVar(&f.alloc, "alloc", "", "the allocation; else any that runs it")
	flags.StringVar(&f.alloc, "allocation", "", "as --alloc")
	if err := flags.MarkHidden("allocation"); err != nil {
		panic(err) // it is the flag above
	}
	f.addExecFlags(c, "the task; needed where several have an action of that name")
	return c
}

// findJobAndAlloc finds the job, and the allocation where one is named.
func (f *actionFlags) findJobAndAlloc(cmd *cobra.Command, o *operator) (*client.Client, fleet.JobID, error) {
	if f.job == "" && f.alloc == "" {
		return nil, "", fleet.Errorf(fleet.CodeInvalid, "run an action: neither a job nor an allocation is named").
			WithHint("name a job with --job, or an allocation of it with --alloc")
	}
	if f.alloc == "" {
		hub, job, err := o.findJob(cmd.Context(), f.job)
		return hub, job.ID, err
	}
	hub, stub, err := o.findAlloc(cmd.Context(), f.alloc)
	if err != nil {
		return nil, "", err
	}
	if f.alloc = string(stub.ID); f.job != "" && f.job != string(stub.JobID) {
		return nil, "", fleet.Errorf(fleet.CodeInvalid, "run an action: allocation %s is one of job %s, and not of %s", displayID(stub.ID), stub.JobID, f.job)
	}
	return hub, stub.JobID, nil
}

// filterActions are the actions of the group and the task that are named.
func (f *actionFlags) filterActions(actions []fleet.JobAction) []fleet.JobAction {
	list := []fleet.JobAction{}
	for _, a := range actions {
		if (f.group == "" || a.TaskGroupName == f.group) && (f.task == "" || a.TaskName == f.task) {
			list = append(list, a)
		}
	}
	return list
}

func (o *operator) showActions(w io.Writer, actions []fleet.JobAction) error {
	if o.json {
		return console.JSON(w, actions)
	}
	t := console.Table{Heads: []string{"NAME", "GROUP", "TASK", "COMMAND"}}
	for _, a := range actions {
		t.Add(a.Name, a.TaskGroupName, a.TaskName, strings.Join(append([]string{a.Command}, a.Args...), " "))
	}
	return t.Write(w)
}
