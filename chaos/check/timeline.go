package check

import (
	"fmt"

	"skerry/fleet"
)

// legal checks invariant 12 of an edge's journal: its rows are a walk that the
// states allow, and disconnect and reconnect alternate.
func legal(e Edge) []Violation {
	var vs []Violation
	w := newWalk()
	for i := range e.Rows {
		for _, m := range w.checkNextRow(&e.Rows[i]) {
			v := violation(m.invariant, "%s (%s)", m.why, describe(e.Rows[i]))
			v.Where = e.Name
			vs = append(vs, v)
		}
	}
	return vs
}

// alternating checks it of the marks that a hub left in an allocation's record: it
// does not lose sight of a node that it has lost sight of, nor have one back that
// was not away. Where marks were let go of the first one may be any.
func alternating(h Hub) []Violation {
	var vs []Violation
	for _, id := range sorted(h.AllocHistory) {
		last := ""
		for _, e := range h.AllocHistory[id] {
			if e.Side != fleet.SideHub || !partition[e.Event] {
				continue
			}
			if last != "" && (last == e.Event || last == fleet.EventNodeDown && e.Event == fleet.EventNodeDisconnected) {
				vs = append(vs, violation(LegalHistory, "%s, allocation %s: %q at index %d follows %q", h.Name, fleet.Short(id), e.Event, e.Index, last))
			}
			last = e.Event
		}
	}
	return vs
}

// partition are the marks that begin and end one.
var partition = map[string]bool{
	fleet.EventNodeDisconnected: true, fleet.EventNodeDown: true, fleet.EventNodeReconnected: true,
}

// reported checks invariant 1 of what rows add up to: a hub has of each allocation
// the status that its edge journaled last.
func reported(h Hub, e Edge) []Violation {
	last := map[fleet.AllocID]fleet.Transition{}
	for _, row := range e.Rows {
		if row.Alloc != "" && row.ClientStatus != "" {
			last[row.Alloc] = row
		}
	}
	var vs []Violation
	for i := range h.Allocs {
		a := &h.Allocs[i]
		row, ok := last[a.ID]
		if ok && a.NodeID == e.NodeID && a.ReportedStatus != row.ClientStatus {
			vs = append(vs, violation(ExactlyOnce, "%s has allocation %s reported as %s, the journal of %s says %s (row %d)",
				h.Name, fleet.Short(a.ID), orNothing(a.ReportedStatus), e.Name, row.ClientStatus, row.Seq))
		}
	}
	return vs
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return fmt.Sprintf("%q", s)
}
