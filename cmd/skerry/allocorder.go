package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// taskFlags name the task that an order is for.
type taskFlags struct{ task string }

func (f *taskFlags) addTaskFlag(c *cobra.Command) {
	c.Flags().StringVar(&f.task, "task", "", "one task, as the second argument")
}

// chosenTask is the task that is meant: "" is all that run.
func (f *taskFlags) chosenTask(args []string) (string, error) {
	switch {
	case len(args) < 2:
		return f.task, nil
	case f.task != "" && f.task != args[1]:
		return "", fleet.Errorf(fleet.CodeInvalid, "two tasks are named: %q and %q", args[1], f.task)
	}
	return args[1], nil
}

func allocRestart(o *operator) *cobra.Command {
	var which taskFlags
	var all bool
	c := &cobra.Command{
		Use: "restart ID [TASK]", Short: "Restart the tasks of an allocation in place", Args: cobra.RangeArgs(1, 2),
		Long: "Restart the tasks of an allocation that run, or one of them, on the node where they are.\n" +
			"The node's link has to be up; on the node itself: skerry local restart.",
		RunE: func(cmd *cobra.Command, args []string) error {
			task, err := which.chosenTask(args)
			if err != nil {
				return err
			}
			return o.runAllocRequest(cmd, args[0], "restarted", func(hub *client.Client, id fleet.AllocID) error {
				return hub.RestartAlloc(cmd.Context(), id, api.AllocRestartRequest{TaskName: task, AllTasks: all})
			})
		},
	}
	which.addTaskFlag(c)
	c.Flags().BoolVar(&all, "all-tasks", false, "restart all tasks; refused if a task has ended")
	return c
}

func allocSignal(o *operator) *cobra.Command {
	var which taskFlags
	var signal string
	c := &cobra.Command{
		Use: "signal ID [TASK]", Short: "Send a signal to an allocation's tasks", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			task, err := which.chosenTask(args)
			if err != nil {
				return err
			}
			return o.runAllocRequest(cmd, args[0], "signalled", func(hub *client.Client, id fleet.AllocID) error {
				return hub.SignalAlloc(cmd.Context(), id, api.AllocSignalRequest{Task: task, Signal: signal})
			})
		},
	}
	which.addTaskFlag(c)
	c.Flags().StringVarP(&signal, "signal", "s", "SIGKILL", "the signal's name")
	return c
}

// runAllocRequest has an allocation's edge do something, and says that it is done.
func (o *operator) runAllocRequest(cmd *cobra.Command, id, done string, ask func(*client.Client, fleet.AllocID) error) error {
	hub, stub, err := o.findAlloc(cmd.Context(), id)
	if err != nil {
		return err
	}
	if err := ask(hub, stub.ID); err != nil {
		return err
	}
	if o.json {
		return console.JSON(cmd.OutOrStdout(), struct {
			Alloc fleet.AllocID
			Done  string
		}{stub.ID, done})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Allocation %s is %s.\n", displayID(stub.ID), done)
	return err
}
