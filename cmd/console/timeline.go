package console

import (
	"fmt"

	"skerry/fleet"
	"skerry/fleet/timeline"
)

// Timeline writes entries in their order, and marks the time without a link. Where they are of several
// allocations, each line names its own.
func (o *Output) Timeline(entries []fleet.HistoryEntry, several bool) {
	t := NewTable(" ", "TIME", "WHO", "ROW", "WHAT")
	if several {
		t.Heads = []string{" ", "TIME", "WHO", "ROW", "ALLOCATION", "WHAT"}
	}
	add := func(mark, at, who, row, alloc, what string) {
		if several {
			t.Add(mark, at, who, row, alloc, what)
		} else {
			t.Add(mark, at, who, row, what)
		}
	}
	away := false
	without := timeline.Apart(entries)
	for i, apart := range without {
		switch {
		case apart && !away:
			add("┌", lastHeard(entries[i:], without[i:]), "", "", "", "── the link is gone ──")
		case !apart && away:
			add("└", "", "", "", "", "── the link is back ──")
		}
		away = apart
		mark := " "
		if away {
			mark = "│"
		}
		e := entries[i]
		row, text := "", WithReason(e.Event, e.Message)
		if e.Transition != nil {
			row, text = fmt.Sprint(e.Transition.Seq), Transition(e.Transition)
		}
		add(mark, LocalTime(e.Time), string(e.Side), row, ID(e.AllocID), text)
	}
	if away {
		add("╵", "", "", "", "", "── the link is still gone ──")
	}
	o.Table(t)
}

// lastHeard is when the edge was last heard of before the time without a link that begins with
// the first entry; "" where no hub says.
func lastHeard(entries []fleet.HistoryEntry, without []bool) string {
	for i, e := range entries {
		if !without[i] {
			break
		}
		if e.Since != nil {
			return LocalTime(*e.Since)
		}
	}
	return ""
}
