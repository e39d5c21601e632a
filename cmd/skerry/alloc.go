package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

func allocCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "alloc", Short: "Show allocations, their logs and their history; stop, restart and signal them"}
	c.AddCommand(allocFS(o), allocStatus(o), allocLogs(o), allocHistory(o), allocStop(o), allocRestart(o), allocSignal(o), allocExec(o), allocChecks(o))
	return c
}

func allocStatus(o *operator) *cobra.Command {
	var stats bool
	c := &cobra.Command{
		Use: "status ID", Short: "Show an allocation", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := o.findAlloc(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			a, err := hub.Alloc(cmd.Context(), stub.ID)
			if err != nil {
				return err
			}
			if o.json && stats {
				return o.showAllocUsage(cmd, hub, a.ID)
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), a)
			}
			if err := writeAlloc(cmd.OutOrStdout(), a); err != nil || !stats {
				return err
			}
			return o.showAllocUsage(cmd, hub, a.ID)
		},
	}
	c.Flags().BoolVar(&stats, "stats", false, "show what its tasks use now, as its node says; with --json that alone")
	return c
}

func writeAlloc(w io.Writer, a fleet.Alloc) error {
	t := console.Table{}
	t.Add("Allocation", a.ID)
	t.Add("Name", a.Name)
	t.Add("Node", fmt.Sprintf("%s (%s)", a.NodeName, displayID(a.NodeID)))
	t.Add("Job", fmt.Sprintf("%s, version %d", a.JobID, a.JobVersion))
	t.Add("Wanted", withReason(a.DesiredStatus, a.DesiredDescription))
	t.Add("Status", withReason(a.ClientStatus, a.ClientDescription))
	if a.ReportedStatus != "" && a.ReportedStatus != a.ClientStatus {
		t.Add("Node said last", a.ReportedStatus)
	}
	t.Add("Placed", fmt.Sprintf("%s, score %.3f, evaluation %s", console.Ago(time.Now(), console.Nano(a.CreateTime)), a.Score, displayID(a.EvalID)))
	t.Add("Resources", fmt.Sprintf("cpu %d MHz, memory %d MB, disk %d MB", a.AllocatedResources.CPU, a.AllocatedResources.MemoryMB, a.AllocatedResources.DiskMB))
	addAssignedResources(&t, a.Allotment)
	if a.PreviousAllocation != "" {
		t.Add("Replaces", displayID(a.PreviousAllocation))
	}
	if a.NextAllocation != "" {
		t.Add("Replaced by", displayID(a.NextAllocation))
	}
	if a.FollowupEvalID != "" {
		t.Add("Follow-up", "evaluation "+displayID(a.FollowupEvalID))
	}
	for _, s := range a.AllocStates {
		t.Add("Concluded", fmt.Sprintf("%s at %s", s.Value, console.LocalTime(s.Time)))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(a.TaskStates)) {
		if err := writeTask(w, name, a.TaskStates[name]); err != nil {
			return err
		}
	}
	return writePlacement(w, a.Metrics)
}

func withReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

func writeTask(w io.Writer, name string, s fleet.TaskState) error {
	state := s.State
	if s.Failed {
		state += ", failed"
	}
	if s.Restarts > 0 {
		state += ", " + console.Count(int(s.Restarts), "restart")
	}
	if s.StartedAt != nil && !s.StartedAt.IsZero() {
		state += ", started " + console.LocalTime(*s.StartedAt)
	}
	fmt.Fprintf(w, "\nTask %q: %s\n", name, state)
	events := console.Table{Heads: []string{"TIME (NODE)", "EVENT", ""}}
	for _, e := range slices.Backward(s.Events) {
		events.Add(console.LocalTime(console.Nano(e.Time)), e.Type, e.DisplayMessage)
	}
	return events.Write(w)
}

func allocStop(o *operator) *cobra.Command {
	var detach, noDelay bool
	c := &cobra.Command{
		Use: "stop ID", Short: "Stop an allocation, and place a new one", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := o.findAlloc(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			answer, err := hub.StopAlloc(cmd.Context(), stub.ID, client.StopOptions{NoShutdownDelay: noDelay})
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), answer)
			}
			if answer.EvalID == "" {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "Allocation %s has ended, or stops already\n", displayID(stub.ID))
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Allocation %s stops, evaluation %s\n", displayID(stub.ID), displayID(answer.EvalID))
			if detach {
				return nil
			}
			return follow(cmd.Context(), hub, cmd.OutOrStdout(), answer.EvalID)
		},
	}
	c.Flags().BoolVarP(&detach, "detach", "d", false, "return as soon as the hub has accepted the request")
	addNoDelay(c, &noDelay)
	return c
}

// addNoDelay gives a command that stops things the flag that leaves the delay out.
func addNoDelay(c *cobra.Command, noDelay *bool) {
	c.Flags().BoolVar(noDelay, "no-shutdown-delay", false, "ignore the shutdown_delay of groups and tasks, also where it has begun")
}

func evalCommand(o *operator) *cobra.Command {
	c := &cobra.Command{Use: "eval", Short: "Show evaluations of the scheduler"}
	c.AddCommand(&cobra.Command{
		Use: "status ID", Short: "Show an evaluation", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			e, err := hub.FindEval(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if o.json {
				return console.JSON(cmd.OutOrStdout(), e)
			}
			return writeEval(cmd.OutOrStdout(), e)
		},
	})
	c.AddCommand(evalList(o))
	return c
}

func evalList(o *operator) *cobra.Command {
	var narrow client.List
	c := &cobra.Command{
		Use: "list", Short: "List evaluations, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := o.hubClient()
			if err != nil {
				return err
			}
			list, err := hub.Evals(cmd.Context(), narrow)
			if err != nil {
				return err
			}
			newestFirst(list, func(e fleet.Evaluation) fleet.Index { return e.CreateIndex })
			if o.json {
				return console.JSON(cmd.OutOrStdout(), list)
			}
			if len(list) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "There are no such evaluations.")
				return err
			}
			t := console.Table{Heads: o.withNamespaceHead("ID", "PRIORITY", "TRIGGERED BY", "JOB", "STATUS", "FAILURES")}
			for _, e := range list {
				t.Add(o.withNamespaceCell(e.Namespace, displayID(e.ID), e.Priority, e.TriggeredBy, e.JobID, e.Status, len(e.FailedTGAllocs) > 0)...)
			}
			return t.Write(cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&narrow.Filter, "filter", "", "those that an expression holds for")
	c.Flags().StringVar(&narrow.Job, "job", "", "those of a job")
	c.Flags().StringVar(&narrow.Status, "status", "", "those of a status")
	return c
}

func writeEval(w io.Writer, e fleet.Evaluation) error {
	t := console.Table{}
	t.Add("Evaluation", e.ID)
	t.Add("Job", e.JobID)
	t.Add("Status", withReason(e.Status, e.StatusDescription))
	t.Add("Triggered by", e.TriggeredBy)
	t.Add("Priority", e.Priority)
	t.Add("Made", console.Ago(time.Now(), console.Nano(e.CreateTime)))
	if !e.WaitUntil.IsZero() {
		t.Add("Not before", console.LocalTime(e.WaitUntil))
	}
	for _, link := range []struct {
		name string
		id   fleet.EvalID
	}{{"Previous", e.PreviousEval}, {"Next", e.NextEval}, {"Blocked", e.BlockedEval}} {
		if link.id != "" {
			t.Add(link.name, displayID(link.id))
		}
	}
	if e.NodeID != "" {
		t.Add("Node", displayID(e.NodeID))
	}
	var queued []string
	for _, g := range slices.Sorted(maps.Keys(e.QueuedAllocations)) {
		queued = append(queued, fmt.Sprintf("%d of group %q", e.QueuedAllocations[g], g))
	}
	if len(queued) > 0 {
		t.Add("Queued", strings.Join(queued, ", "))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if len(e.FailedTGAllocs)+len(e.AwaitsRoom) > 0 {
		fmt.Fprintln(w)
	}
	writeUnplaced(w, e)
	return nil
}
