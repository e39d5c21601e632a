// Package eval has the commands of skerry eval. It starts no goroutine, and persists nothing.
package eval

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/cmd/skerry/follow"
	"skerry/fleet"
)

// Command is skerry eval.
func Command(s *command.Session) *cobra.Command {
	return command.Group("eval", "Show evaluations of the scheduler", statusCommand(s), listCommand(s))
}

func statusCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "status ID", Short: "Show an evaluation", Args: cobra.ExactArgs(1),
		Example: `  skerry eval status 811e24ed`,
		RunE:    command.Show(s, command.Named((*client.Client).FindEval), writeEval),
	}
}

func listCommand(s *command.Session) *cobra.Command {
	var query client.List
	list := command.Newest(command.Listed((*client.Client).Evals, &query), func(e fleet.Evaluation) fleet.Index { return e.CreateIndex })
	c := &cobra.Command{
		Use: "list", Short: "List evaluations, the newest first", Args: cobra.NoArgs,
		Example: `  skerry eval list
  skerry eval list --job shop --status blocked`,
		RunE: command.Show(s, list, console.List[fleet.Evaluation]{
			None: "There are no such evaluations.", Heads: []string{"ID", "PRIORITY", "TRIGGERED BY", "JOB", "STATUS", "FAILURES"},
			Namespace: func(e fleet.Evaluation) string { return e.Namespace },
			Row: func(e fleet.Evaluation) []any {
				return []any{console.ID(e.ID), e.Priority, e.TriggeredBy, e.JobID, e.Status, len(e.FailedTGAllocs) > 0}
			},
		}.Write),
	}
	c.Flags().StringVar(&query.Filter, "filter", "", `list only evaluations for which this expression is true, such as JobID == "shop"`)
	c.Flags().StringVar(&query.Job, "job", "", "list only evaluations of this job")
	c.Flags().StringVar(&query.Status, "status", "", "list only evaluations with this status")
	return c
}

func writeEval(out *console.Output, e fleet.Evaluation) {
	t := console.NewTable()
	t.Add("Evaluation", e.ID)
	t.Add("Job", e.JobID)
	t.Add("Status", console.WithReason(e.Status, e.StatusDescription))
	t.Add("Triggered by", e.TriggeredBy)
	t.Add("Priority", e.Priority)
	t.Add("Made", console.SinceNano(e.CreateTime))
	if !e.WaitUntil.IsZero() {
		t.Add("Not before", console.LocalTime(e.WaitUntil))
	}
	t.AddSet("Previous", console.ID(e.PreviousEval))
	t.AddSet("Next", console.ID(e.NextEval))
	t.AddSet("Blocked", console.ID(e.BlockedEval))
	t.AddSet("Node", console.ID(e.NodeID))
	var queued []string
	for _, g := range slices.Sorted(maps.Keys(e.QueuedAllocations)) {
		queued = append(queued, fmt.Sprintf("%d of group %q", e.QueuedAllocations[g], g))
	}
	t.AddSet("Queued", strings.Join(queued, ", "))
	out.Table(t)
	if len(e.FailedTGAllocs)+len(e.AwaitsRoom) > 0 {
		out.Line("")
	}
	follow.WriteUnplaced(out, e)
}
