package follow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/cmd/skerry/progress"
	"skerry/fleet"
)

// screen shows allocations as they change: as a table that is written over and over on a terminal, else
// with a line for each change.
type screen struct {
	*console.Screen
	seen map[fleet.AllocID]string
}

func newScreen(out *console.Output) *screen {
	return &screen{console.NewScreen(out), map[fleet.AllocID]string{}}
}

// foldedFrom is how many allocations that reach the same status at once share one line.
const foldedFrom = 6

func (s *screen) showAllocs(allocs []api.AllocStub) {
	allocs = slices.Clone(allocs)
	slices.SortStableFunc(allocs, func(a, b api.AllocStub) int { return strings.Compare(a.Name+string(a.ID), b.Name+string(b.ID)) })
	if !s.IsTerminal() {
		s.writeChanges(allocs)
		return
	}
	t := console.NewTable("ID", "ALLOCATION", "NODE", "VERSION", "WANTED", "STATUS", "TASKS")
	for _, a := range allocs {
		if a.ClientStatus == fleet.ClientRunning || a.ClientStatus == fleet.ClientPending || a.DesiredStatus == fleet.DesiredRun && !a.Retired {
			t.Add(console.ID(a.ID), a.Name, a.NodeName, a.JobVersion, a.DesiredStatus, a.ClientStatus, TaskStates(a))
		}
	}
	s.WriteOver(func(out *console.Output) { out.Table(t) })
}

// writeChanges writes a line for each allocation whose status is another one than before. Many
// that reach the same status at once, and have nothing to say of it, share one line.
func (s *screen) writeChanges(allocs []api.AllocStub) {
	type change struct{ state, group string }
	var order []change
	lines := map[change][]string{}
	for _, a := range allocs {
		state := a.ClientStatus
		if a.DesiredStatus != fleet.DesiredRun && a.ClientStatus == fleet.ClientRunning {
			state = "stopping"
		}
		was, known := s.seen[a.ID]
		s.seen[a.ID] = state
		if was == state || !known && a.DesiredStatus != fleet.DesiredRun && state != "stopping" {
			continue
		}
		key, line := change{state, a.TaskGroup}, fmt.Sprintf("allocation %s %s on %s is %s", console.ID(a.ID), a.Name, a.NodeName, state)
		if a.ClientStatus == fleet.ClientFailed {
			why := progress.FailureReason(a)
			key.state, line = key.state+": "+why, line+": "+why
		}
		if lines[key] == nil {
			order = append(order, key)
		}
		lines[key] = append(lines[key], line)
	}
	now := time.Now().Format(time.TimeOnly)
	for _, key := range order {
		if n := len(lines[key]); n >= foldedFrom {
			lines[key] = []string{fmt.Sprintf("%d allocations of group %q are %s", n, key.group, key.state)}
		}
		for _, line := range lines[key] {
			s.Out.Line("%s  %s", now, line)
		}
	}
}

// TaskStates writes an allocation's tasks in one cell.
func TaskStates(a api.AllocStub) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a.TaskStates)) {
		t := a.TaskStates[name]
		part := name + " " + t.State
		if t.Restarts > 0 {
			part += " (" + console.Count(int(t.Restarts), "restart") + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
