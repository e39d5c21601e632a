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

// checkSessions checks invariant 2 from the log's own order: between a missed deadline
// and the next session's first heartbeat no row of the node was applied, epochs
// grow, and the node is ready only with the history that it announced.
func (q *quietJudge) checkSessions(h Hub, n fleet.Node) {
	if n.Status == fleet.NodeReady && n.Applied < n.JournalHead {
		q.addViolation(HeartbeatFirst, "%s: node %s is ready at row %d, it announced %d", h.Name, n.Name, n.Applied, n.JournalHead)
	}
	shut := "" // the mark that closed the door, "" while it is open
	var epoch fleet.Epoch
	for _, e := range timeline(h, n.ID) {
		if e.Side == fleet.SideEdge {
			if shut != "" && e.Transition != nil {
				q.addViolation(HeartbeatFirst, "%s: row %d of node %s was applied at index %d, after it was %s and before a session",
					h.Name, e.Transition.Seq, n.Name, e.Index, shut)
			}
			continue
		}
		switch e.Event {
		case markSession:
			var next fleet.Epoch
			if _, err := fmt.Sscanf(e.Message, "epoch %d", &next); err == nil && next <= epoch {
				q.addViolation(HeartbeatFirst, "%s: node %s had epoch %d after epoch %d", h.Name, n.Name, next, epoch)
			}
			epoch, shut = max(epoch, next), ""
		case markDisconnected, markDown:
			shut = e.Event
		case markReady:
			if shut != "" {
				q.addViolation(HeartbeatFirst, "%s: node %s became ready after it was %s, without a session", h.Name, n.Name, shut)
			}
		}
	}
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

// checkLegalRows checks invariant 12 of an edge's journal: its rows are a walk that the
// states allow, and disconnect and reconnect alternate.
func (q *quietJudge) checkLegalRows(e Edge) {
	w := newWalk()
	for i := range e.Rows {
		for _, v := range w.checkNextRow(&e.Rows[i]) {
			v.Message, v.Where = fmt.Sprintf("%s (%s)", v.Message, describe(e.Rows[i])), e.Name
			q.found = append(q.found, v)
		}
	}
}

// checkAlternation checks it of the marks that a hub left in an allocation's record: it
// does not lose sight of a node that it has lost sight of, nor have one back that
// was not away. Where marks were let go of the first one may be any.
func (q *quietJudge) checkAlternation(h Hub) {
	for _, id := range sorted(h.AllocHistory) {
		last := ""
		for _, e := range h.AllocHistory[id] {
			if e.Side != fleet.SideHub || !partition[e.Event] {
				continue
			}
			if last != "" && (last == e.Event || last == fleet.EventNodeDown && e.Event == fleet.EventNodeDisconnected) {
				q.addViolation(LegalHistory, "%s, allocation %s: %q at index %d follows %q", h.Name, fleet.Short(id), e.Event, e.Index, last)
			}
			last = e.Event
		}
	}
}

// partition are the marks that begin and end one.
var partition = map[string]bool{
	fleet.EventNodeDisconnected: true, fleet.EventNodeDown: true, fleet.EventNodeReconnected: true,
}

// checkReported checks invariant 1 of what rows add up to: a hub has of each allocation
// the status that its edge journaled last.
func (q *quietJudge) checkReported(h Hub, e Edge) {
	last := map[fleet.AllocID]fleet.Transition{}
	for _, row := range e.Rows {
		if row.Alloc != "" && row.ClientStatus != "" {
			last[row.Alloc] = row
		}
	}
	for i := range h.Allocs {
		a := &h.Allocs[i]
		row, ok := last[a.ID]
		if ok && a.NodeID == e.NodeID && a.ReportedStatus != row.ClientStatus {
			q.addViolation(ExactlyOnce, "%s has allocation %s reported as %s, the journal of %s says %s (row %d)",
				h.Name, fleet.Short(a.ID), cmp.Or(a.ReportedStatus, "nothing"), e.Name, row.ClientStatus, row.Seq)
		}
	}
}

// happening tells a row from all others of its edge, also where it was given
// another number since.
type happening struct {
	boot  fleet.BootID
	mono  int64
	wall  int64
	kind  fleet.TransitionKind
	alloc fleet.AllocID
	task  string
	event string
}

func happeningOf(t fleet.Transition) happening {
	h := happening{boot: t.BootID, mono: int64(t.Mono), wall: t.Wall, kind: t.Kind, alloc: t.Alloc, task: t.Task}
	if t.Event != nil {
		h.event = t.Event.Type
	}
	return h
}

// checkLossReported checks invariant 1 of a damaged journal: gap rows at the hub count each row
// that it held and that the hub lacks. A gap row without a count stands for any number. Rows
// that the hub dropped at its own bound, and counts, are not lost.
func (q *quietJudge) checkLossReported(h Hub, e Edge) {
	if e.Replaced {
		return
	}
	known := map[happening]bool{}
	for _, a := range h.Allocs {
		for _, entry := range h.AllocHistory[a.ID] {
			if entry.Transition != nil {
				known[happeningOf(*entry.Transition)] = true
			}
		}
	}
	missing := map[fleet.AllocID][]fleet.Transition{}
	for _, row := range e.Before { // what was damaged twice is in it twice
		if it := happeningOf(row); len(h.AllocHistory[row.Alloc]) > 0 && !known[it] {
			missing[row.Alloc] = append(missing[row.Alloc], row)
			known[it] = true
		}
	}
	var lost []fleet.Transition
	for _, id := range sorted(missing) {
		lost = append(lost, missing[id][min(uint64(len(missing[id])), h.Dropped[id]):]...)
	}
	if len(lost) == 0 {
		return
	}
	spoken, uncounted := uint64(0), false
	for _, entry := range h.NodeHistory[e.NodeID] {
		if entry.Event == fleet.EventGap {
			spoken += entry.Gone
			uncounted = uncounted || entry.Gone == 0
		}
		if t := entry.Transition; t != nil && t.Kind == fleet.TransitionGap && t.Message != "" {
			spoken += t.Dropped
			uncounted = uncounted || t.Dropped == 0
		}
	}
	if uncounted || spoken >= uint64(len(lost)) {
		return
	}
	q.addViolation(ExactlyOnce, "%s lacks %d rows that %s had journaled, and %d are said to be lost (row %d: %s)",
		h.Name, len(lost), e.Name, spoken, lost[0].Seq, describe(lost[0]))
}
