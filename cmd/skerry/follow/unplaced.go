package follow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry/cmd/console"
	"skerry/fleet"
)

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
