package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/edged"
	"skerry/fleet"
)

// anyAllocFlags is --job: what is named is a job, and any allocation of it will do.
type anyAllocFlags struct {
	job   bool
	group string
}

func (f *anyAllocFlags) addAnyAllocFlags(c *cobra.Command) {
	c.Flags().BoolVar(&f.job, "job", false, "the id is a job's: any allocation of it that runs will do")
	c.Flags().StringVar(&f.group, "group", "", "with --job, any of this group")
}

// chooseAlloc finds the allocation that is meant: one that runs, where there is one of those.
func (f *anyAllocFlags) chooseAlloc(ctx context.Context, o *operator, id string) (*client.Client, api.AllocStub, error) {
	var none api.AllocStub
	if !f.job {
		if f.group != "" {
			return nil, none, fleet.Errorf(fleet.CodeInvalid, "group %q is named, and no job", f.group).
				WithHint("--job takes the id for a job's")
		}
		return o.findAlloc(ctx, id)
	}
	hub, job, err := o.findJob(ctx, id)
	if err != nil {
		return nil, none, err
	}
	list, err := hub.JobAllocs(ctx, job.ID, client.List{})
	if err != nil {
		return nil, none, err
	}
	var best *api.AllocStub
	for i, a := range list {
		switch {
		case f.group != "" && a.TaskGroup != f.group:
		case best == nil, a.ClientStatus == fleet.ClientRunning && best.ClientStatus != fleet.ClientRunning,
			(a.ClientStatus == fleet.ClientRunning) == (best.ClientStatus == fleet.ClientRunning) && a.CreateIndex > best.CreateIndex:
			best = &list[i]
		}
	}
	if best != nil {
		return hub, *best, nil
	}
	what := ""
	if f.group != "" {
		what = " in group " + strconv.Quote(f.group)
	}
	return nil, none, fleet.Errorf(fleet.CodeNotFound, "job %q has no allocation%s", job.ID, what)
}

func allocLogs(o *operator) *cobra.Command {
	var follow, stderr, stdout bool
	var tail tailFlags
	var from anyAllocFlags
	var task string
	c := &cobra.Command{
		Use: "logs ID [TASK]", Short: "Show the logs of a task", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				if task != "" {
					return fleet.Errorf(fleet.CodeInvalid, "two tasks are named: %q and %q", task, args[1])
				}
				task = args[1]
			}
			hub, stub, err := from.chooseAlloc(cmd.Context(), o, args[0])
			if err != nil {
				return err
			}
			q, err := tail.logTail(cmd.Context(), hub, stub.ID, client.LogQuery{Task: task, Stderr: stderr, Follow: follow})
			if err != nil {
				return err
			}
			out, err := hub.TaskLogs(cmd.Context(), stub.ID, q)
			if err != nil {
				return err
			}
			defer out.Close()
			return edged.CopyLogs(cmd.Context(), cmd.OutOrStdout(), out, o.json)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as the task writes")
	c.Flags().BoolVar(&stderr, "stderr", false, "show its stderr")
	c.Flags().BoolVar(&stdout, "stdout", false, "show its stdout, as it does anyway")
	c.MarkFlagsMutuallyExclusive("stdout", "stderr")
	c.Flags().StringVar(&task, "task", "", "the task, as the second argument")
	tail.addTailFlags(c)
	from.addAnyAllocFlags(c)
	return c
}
