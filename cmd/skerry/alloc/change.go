package alloc

import (
	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/follow"
	"skerry/fleet"
)

func stopCommand(s *command.Session) *cobra.Command {
	var detach bool
	var o client.StopOptions
	c := &cobra.Command{
		Use: "stop ID", Short: "Stop an allocation, and let its job place a new one", Args: cobra.ExactArgs(1),
		Example: `  skerry alloc stop 1d697ed5`,
		Long: "Stop an allocation, and let its job place a new one. The command follows the evaluation until the new allocation\n" +
			"runs. A disconnected node stops the allocation when it is back.",
		RunE: s.RunAlloc(func(c *command.Call, stub api.AllocStub) error {
			answer, err := c.Hub.StopAlloc(c.Context(), stub.ID, o)
			if err != nil {
				return err
			}
			done := "Allocation " + console.ID(stub.ID) + " stops"
			if answer.EvalID == "" {
				done = "Allocation " + console.ID(stub.ID) + " has ended or is already stopping"
			}
			return follow.ShowAnswer(c, answer, answer.EvalID, detach, done)
		}),
	}
	command.AddDetach(c, &detach)
	command.AddNoShutdownDelay(c, &o.NoShutdownDelay)
	return c
}

func restartCommand(s *command.Session) *cobra.Command {
	var req api.AllocRestartRequest
	c := requestCommand(s, &req.TaskName, "restarted", func(c *command.Call, id fleet.AllocID) error {
		return c.Hub.RestartAlloc(c.Context(), id, req)
	})
	c.Use, c.Short = "restart ID [TASK]", "Restart the tasks of an allocation in place"
	c.Example = `  skerry alloc restart 1d697ed5
  skerry alloc restart 1d697ed5 backend`
	c.Long = "Restart the tasks of an allocation that have not ended, or one of them, on the node where they are.\n" +
		"The node must be connected to a hub; on the node itself use skerry local restart."
	c.Flags().BoolVar(&req.AllTasks, "all-tasks", false, "restart all tasks, or none if one of them has ended")
	return c
}

func signalCommand(s *command.Session) *cobra.Command {
	var req api.AllocSignalRequest
	c := requestCommand(s, &req.Task, "signalled", func(c *command.Call, id fleet.AllocID) error {
		return c.Hub.SignalAlloc(c.Context(), id, req)
	})
	c.Use, c.Short = "signal ID [TASK]", "Send a signal to an allocation's tasks"
	c.Example = `  skerry alloc signal --signal SIGHUP 1d697ed5 backend`
	c.Long = "Send a signal to the running tasks of an allocation, or to one of them. A task that ends is restarted as its\n" +
		"restart policy says. The node must be connected to a hub."
	c.Flags().StringVarP(&req.Signal, "signal", "s", "SIGKILL", "signal to send")
	return c
}

// requestCommand makes a command that sends a request about a task, or all running tasks, to an allocation's edge.
// done is the past participle for the output.
func requestCommand(s *command.Session, task *string, done string, ask func(*command.Call, fleet.AllocID) error) *cobra.Command {
	c := &cobra.Command{
		Args: cobra.RangeArgs(1, 2),
		RunE: s.Run(func(c *command.Call) error {
			if len(c.Args) > 1 {
				if *task != "" && *task != c.Args[1] {
					return fleet.Errorf(fleet.CodeInvalid, "choose a task: two tasks are named, %q and %q", c.Args[1], *task)
				}
				*task = c.Args[1]
			}
			stub, err := c.FindAlloc(c.Args[0])
			if err != nil {
				return err
			}
			if err := ask(c, stub.ID); err != nil {
				return err
			}
			c.Out.Say(struct {
				Alloc fleet.AllocID
				Done  string
			}{stub.ID, done}, "Allocation %s is %s.", console.ID(stub.ID), done)
			return nil
		}),
	}
	c.Flags().StringVar(task, "task", "", "choose one task; same as the argument TASK")
	return c
}
