package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"skerry/cmd/console"
	"skerry/fleet"
)

// addAssignedResources adds what an allocation was given of its node beside amounts.
func addAssignedResources(t *console.Table, a *fleet.AssignedResources) {
	if a == nil {
		return
	}
	for _, p := range a.Ports {
		line := fmt.Sprintf("%s: %s", p.Label, strings.TrimPrefix(fmt.Sprintf("%s:%d", p.HostIP, p.Value), ":"))
		if p.To > 0 && p.To != p.Value {
			line += fmt.Sprintf(" -> %d", p.To)
		}
		t.Add("Port", line)
	}
	for _, task := range slices.Sorted(maps.Keys(a.Tasks)) {
		given := a.Tasks[task]
		if len(given.Cores) > 0 {
			t.Add("Cores", fmt.Sprintf("task %s: %s", task, strings.Trim(fmt.Sprint(given.Cores), "[]")))
		}
		for _, d := range given.Devices {
			t.Add("Devices", fmt.Sprintf("task %s: %s/%s/%s %s", task, d.Vendor, d.Type, d.Name, strings.Join(d.DeviceIDs, " ")))
		}
	}
}

// writePlacement shows how an allocation's node was chosen.
func writePlacement(w io.Writer, m *fleet.AllocMetric) error {
	if m == nil || len(m.ScoreMetaData) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nPlacement: %d nodes looked at, %d did not suit, %d were full\n", m.NodesEvaluated, m.NodesFiltered, m.NodesExhausted)
	for _, counts := range []map[string]int{m.ConstraintFiltered, m.DimensionExhausted} {
		for _, why := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(w, "  %d: %s\n", counts[why], why)
		}
	}
	parts := map[string]bool{}
	for _, s := range m.ScoreMetaData {
		for name := range s.Scores {
			parts[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(parts))
	t := console.Table{Heads: []string{"NODE"}}
	for _, name := range names {
		t.Heads = append(t.Heads, strings.ToUpper(name))
	}
	t.Heads = append(t.Heads, "SCORE")
	for _, s := range m.ScoreMetaData {
		row := []any{displayID(s.NodeID)}
		for _, name := range names {
			row = append(row, fmt.Sprintf("%.3f", s.Scores[name]))
		}
		t.Add(append(row, fmt.Sprintf("%.3f", s.NormScore))...)
	}
	return t.Write(w)
}
