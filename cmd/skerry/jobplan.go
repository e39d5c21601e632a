package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/fleet/diff"
)

func jobPlan(o *operator) *cobra.Command {
	var file jobFileFlags
	c := &cobra.Command{
		Use: "plan FILE", Short: "Show what the registration of a job would change", Args: cobra.ExactArgs(1),
		Long: "Show what registering a job would change, field by field, and what the scheduler would do, and do\n" +
			"nothing. It exits with 0 where no allocation would be made or stopped, with 1 where some would, and\n" +
			"with 255 where it cannot be told.",
		Annotations: map[string]string{failsWith: "255"},
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := file.parseJobFile(cmd, args[0])
			if err != nil {
				return err
			}
			hub, err := o.hubClientFor(job)
			if err != nil {
				return err
			}
			answer, err := hub.PlanJob(cmd.Context(), job)
			if err != nil {
				return err
			}
			if o.json {
				return errors.Join(console.JSON(cmd.OutOrStdout(), answer), planExitError(answer))
			}
			if err := o.writeColoured(cmd.OutOrStdout(), func(w io.Writer) { writePlan(w, answer) }); err != nil {
				return err
			}
			warn(cmd, warnings(answer.Warnings, job))
			fmt.Fprintln(cmd.OutOrStdout())
			console.Hint(cmd.OutOrStdout(), "to register exactly this: skerry job run --check-index %d %s", answer.JobModifyIndex, file.repeatArgs(args[0]))
			return planExitError(answer)
		},
	}
	file.addJobFileFlags(c)
	return c
}

// planExitError ends a plan as its exit code says: 1 where allocations would be made or stopped.
func planExitError(p api.PlanAnswer) error {
	for _, u := range p.Annotations.DesiredTGUpdates {
		if u.Place+u.Stop+u.DestructiveUpdate+u.Canary > 0 {
			return &console.ExitError{Code: 1, Err: errors.New("allocations would be made or stopped"), Silent: true}
		}
	}
	return nil
}

// warn writes what the hub says of a job that it takes, a line each.
func warn(cmd *cobra.Command, warnings string) {
	for line := range strings.Lines(warnings) {
		fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s\n", strings.TrimSuffix(line, "\n"))
	}
}

func writePlan(w io.Writer, p api.PlanAnswer) {
	if p.Diff != nil {
		writeDiff(w, *p.Diff, "")
	}
	fmt.Fprintln(w)
	for _, name := range slices.Sorted(maps.Keys(p.Annotations.DesiredTGUpdates)) {
		u := p.Annotations.DesiredTGUpdates[name]
		fmt.Fprintf(w, "Group %q: %s%s\n", name, nonZeroCounts(u.Place, "to place", u.Canary, "to place as canaries", u.InPlaceUpdate, "to update in place",
			u.DestructiveUpdate, "to replace", u.Stop, "to stop", u.Disconnect, "to be unknown", u.Reconnect, "to take back",
			u.Ignore, "left alone"), unplacedText(u, p.FailedTGAllocs[name]))
		if m := p.FailedTGAllocs[name]; m != nil {
			for _, line := range placementReasons(m) {
				fmt.Fprintln(w, "  "+line)
			}
		}
	}
	for _, reason := range p.Reasons {
		fmt.Fprintln(w, "  "+reason)
	}
	if at := p.NextPeriodicLaunch; !at.IsZero() {
		fmt.Fprintf(w, "Registered now, it is launched next at %s\n", at.Local().Format("2006-01-02 15:04:05 MST"))
	}
}

// unplacedText says how many of those to place and to replace are not placed at once.
func unplacedText(u fleet.DesiredUpdates, failed *fleet.AllocMetric) string {
	text := ""
	if u.AwaitsRoom > 0 {
		text = fmt.Sprintf("; %d of them once the allocations that make room have stopped", u.AwaitsRoom)
	}
	switch {
	case u.NoNode > 0:
		text += fmt.Sprintf("; for %d of them there is no node now:", u.NoNode)
	case failed != nil:
		text += "; no node suits it:"
	}
	return text
}

// placementReasons explains a failed placement.
func placementReasons(m *fleet.AllocMetric) []string {
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
		lines = append(lines, fmt.Sprintf("%s %s: %s", displayID(r.NodeID), r.NodeName, r.Why))
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

var diffMarks = map[diff.Type]string{
	diff.Added: "+", diff.Deleted: "-", diff.Edited: "~", diff.None: " ",
}

// writeDiff writes what a version of a job changes, a line each.
func writeDiff(w io.Writer, d diff.Job, indent string) {
	if d.Type == diff.None {
		fmt.Fprintf(w, "%sNothing changes.\n", indent)
		return
	}
	fmt.Fprintf(w, "%s%s job %q\n", indent, diffMarks[d.Type], d.ID)
	writeFields(w, d.Fields, d.Objects, indent+"  ")
	for _, g := range d.TaskGroups {
		if g.Type == diff.None {
			continue
		}
		note := ""
		if g.Change == diff.GroupInPlace || g.Change == diff.GroupDestructive && g.Type == diff.Edited {
			note = " (" + string(g.Change) + ")"
		}
		fmt.Fprintf(w, "%s%s group %q%s\n", indent+"  ", diffMarks[g.Type], g.Name, note)
		writeFields(w, g.Fields, g.Objects, indent+"    ")
		for _, t := range g.Tasks {
			note := ""
			if len(t.Annotations) > 0 {
				note = " (" + strings.Join(t.Annotations, ", ") + ")"
			}
			fmt.Fprintf(w, "%s%s task %q%s\n", indent+"    ", diffMarks[t.Type], t.Name, note)
			writeFields(w, t.Fields, t.Objects, indent+"      ")
		}
	}
}

func writeFields(w io.Writer, fields []diff.Field, objects []diff.Object, indent string) {
	for _, f := range fields {
		was, is := diffValue(f.Name, f.Old), diffValue(f.Name, f.New)
		switch f.Type {
		case diff.Added:
			fmt.Fprintf(w, "%s+ %s: %q\n", indent, f.Name, is)
		case diff.Deleted:
			fmt.Fprintf(w, "%s- %s: %q\n", indent, f.Name, was)
		default:
			fmt.Fprintf(w, "%s~ %s: %q => %q\n", indent, f.Name, was, is)
		}
	}
	for _, o := range objects {
		fmt.Fprintf(w, "%s%s %s\n", indent, diffMarks[o.Type], o.Name)
		writeFields(w, o.Fields, nil, indent+"  ")
	}
}
