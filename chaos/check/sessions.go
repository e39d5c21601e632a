package check

import (
	"cmp"
	"fmt"
	"slices"

	"skerry/fleet"
)

// Marks that the replicated state leaves in a node's history.
const (
	markSession      = "session"
	markReady        = "ready"
	markDisconnected = string(fleet.NodeDisconnected)
	markDown         = string(fleet.NodeDown)
)

// sessions checks invariant 2 from the log's own order: between a missed deadline
// and the next session's first heartbeat no row of the node was applied, epochs
// grow, and the node is ready only with the history that it announced.
func sessions(h Hub, n fleet.Node) []Violation {
	var vs []Violation
	if n.Status == fleet.NodeReady && n.Applied < n.JournalHead {
		vs = append(vs, violation(2, "%s: node %s is ready at row %d, it announced %d", h.Name, n.Name, n.Applied, n.JournalHead))
	}
	shut := "" // the mark that closed the door, "" while it is open
	var epoch fleet.Epoch
	for _, e := range timeline(h, n.ID) {
		if e.Side == fleet.SideEdge {
			if shut != "" && e.Transition != nil {
				vs = append(vs, violation(2, "%s: row %d of node %s was applied at index %d, after it was %s and before a session",
					h.Name, e.Transition.Seq, n.Name, e.Index, shut))
			}
			continue
		}
		switch e.Event {
		case markSession:
			var next fleet.Epoch
			if _, err := fmt.Sscanf(e.Message, "epoch %d", &next); err == nil && next <= epoch {
				vs = append(vs, violation(2, "%s: node %s had epoch %d after epoch %d", h.Name, n.Name, next, epoch))
			}
			epoch, shut = max(epoch, next), ""
		case markDisconnected, markDown:
			shut = e.Event
		case markReady:
			if shut != "" {
				vs = append(vs, violation(2, "%s: node %s became ready after it was %s, without a session", h.Name, n.Name, shut))
			}
		}
	}
	return vs
}

// timeline is all that a hub recorded about a node and its allocations, in the
// order of the log.
func timeline(h Hub, id fleet.NodeID) []fleet.HistoryEntry {
	entries := slices.Clone(h.NodeHistory[id])
	for _, a := range h.Allocs {
		if a.NodeID != id {
			continue
		}
		for _, e := range h.AllocHistory[a.ID] {
			if e.Side == fleet.SideEdge {
				entries = append(entries, e)
			}
		}
	}
	slices.SortStableFunc(entries, func(x, y fleet.HistoryEntry) int { return cmp.Compare(x.Index, y.Index) })
	return entries
}
