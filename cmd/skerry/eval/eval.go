// Package eval has the commands of skerry eval, and follows an evaluation and what comes of it for the
// commands that make one. It starts no goroutine, and persists nothing.
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
	"skerry/fleet"
)

// Command is skerry eval.
func Command(s *command.Session) *cobra.Command {
	return command.Group("eval", "Show evaluations of the scheduler", statusCommand(s), listCommand(s))
}

func statusCommand(s *command.Session) *cobra.Command {
	return &cobra.Command{
		Use: "status ID", Short: "Show an evaluation", Args: cobra.ExactArgs(1),
		RunE: command.Show(s, command.Named((*client.Client).FindEval), writeEval),
	}
}

func listCommand(s *command.Session) *cobra.Command {
	var query client.List
	list := command.Newest(command.Listed((*client.Client).Evals, &query), func(e fleet.Evaluation) fleet.Index { return e.CreateIndex })
	c := &cobra.Command{
		Use: "list", Short: "List evaluations, the newest first", Args: cobra.NoArgs,
		RunE: command.Show(s, list, console.List[fleet.Evaluation]{
			None: "There are no such evaluations.", Heads: []string{"ID", "PRIORITY", "TRIGGERED BY", "JOB", "STATUS", "FAILURES"},
			Namespace: func(e fleet.Evaluation) string { return e.Namespace },
			Row: func(e fleet.Evaluation) []any {
				return []any{console.ID(e.ID), e.Priority, e.TriggeredBy, e.JobID, e.Status, len(e.FailedTGAllocs) > 0}
			},
		}.Write),
	}
	c.Flags().StringVar(&query.Filter, "filter", "", "list only evaluations for which this expression is true")
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
	WriteUnplaced(out, e)
}

// WriteUnplaced writes how many allocations of an evaluation are not placed, and why.
func WriteUnplaced(out *console.Output, e fleet.Evaluation) {
	for _, group := range slices.Sorted(maps.Keys(e.AwaitsRoom)) {
		out.Line("Group %q: %d to place as soon as the allocations that make room have stopped", group, e.AwaitsRoom[group])
	}
	for _, group := range slices.Sorted(maps.Keys(e.FailedTGAllocs)) {
		m := e.FailedTGAllocs[group]
		out.Line("Group %q: %d cannot be placed", group, m.CoalescedFailures+1)
		for _, line := range PlacementReasons(m) {
			out.Line("  %s", line)
		}
	}
}

// PlacementReasons explains a failed placement.
func PlacementReasons(m *fleet.AllocMetric) []string {
	var lines []string
	if m.NodesEvaluated == 0 {
		lines = append(lines, fmt.Sprintf("no node may be used: %d in the pool, %s", m.NodesInPool, byDatacenter(m.NodesAvailable)))
	}
	for _, c := range slices.Sorted(maps.Keys(m.ConstraintFiltered)) {
		lines = append(lines, fmt.Sprintf("constraint %q rules out %s", c, console.Count(m.ConstraintFiltered[c], "node")))
	}
	for _, c := range slices.Sorted(maps.Keys(m.ClassFiltered)) {
		lines = append(lines, fmt.Sprintf("class %q rules out %s", c, console.Count(m.ClassFiltered[c], "node")))
	}
	for _, d := range slices.Sorted(maps.Keys(m.DimensionExhausted)) {
		lines = append(lines, fmt.Sprintf("%s is exhausted on %s", d, console.Count(m.DimensionExhausted[d], "node")))
	}
	if m.NodesEvaluated > 0 {
		lines = append(lines, fmt.Sprintf("%s looked at: %d ruled out, %d full", console.Count(m.NodesEvaluated, "node"), m.NodesFiltered, m.NodesExhausted))
	}
	for _, r := range m.RejectedNodes {
		lines = append(lines, fmt.Sprintf("%s %s: %s", console.ID(r.NodeID), r.NodeName, r.Why))
	}
	if rest := m.NodesFiltered + m.NodesExhausted - len(m.RejectedNodes); rest > 0 && len(m.RejectedNodes) > 0 {
		lines = append(lines, fmt.Sprintf("… and %s", console.Count(rest, "other node")))
	}
	if m.NodesAway > 0 {
		lines = append(lines, fmt.Sprintf("%s with a place for it: disconnected or down", console.Count(m.NodesAway, "node")))
	}
	return lines
}

func byDatacenter(available map[string]int) string {
	var parts []string
	for _, dc := range slices.Sorted(maps.Keys(available)) {
		parts = append(parts, fmt.Sprintf("%d ready in %s", available[dc], dc))
	}
	if len(parts) == 0 {
		return "none is ready in the job's datacenters"
	}
	return strings.Join(parts, ", ")
}
