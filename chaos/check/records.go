package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"skerry/fleet"
)

// Events that hub/state writes into a node's history.
const (
	markSession      = "session"
	markReady        = "ready"
	markDisconnected = string(fleet.NodeDisconnected)
	markDown         = string(fleet.NodeDown)
)

// checkSessions checks invariant 2 in the order of the log: no row of the node was applied between a missed
// deadline and the next session, epochs grow, and the node is ready only with the history that it announced.
func (q *quietJudge) checkSessions(h Hub, n fleet.Node) {
	if n.Status == fleet.NodeReady && n.Applied < n.JournalHead {
		q.addViolation(HeartbeatFirst, "%s: node %s is ready at row %d, it announced %d", h.Name, n.Name, n.Applied, n.JournalHead)
	}
	shut := "" // the event after which no rows are allowed; "": rows are allowed
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

// timeline returns the events that a hub recorded about a node, and the edge's rows of the node's allocations,
// in the order of the hub's log.
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

// checkLegalRows checks invariant 12 in an edge's journal: each row is allowed to follow the rows before it,
// and disconnect and reconnect alternate.
func (q *quietJudge) checkLegalRows(e Edge) {
	w := newWalk()
	for i := range e.Rows {
		for _, v := range w.checkNextRow(&e.Rows[i]) {
			v.Message, v.Where = fmt.Sprintf("%s (%s)", v.Message, describeRow(e.Rows[i])), e.Name
			q.found = append(q.found, v)
		}
	}
}

// checkAlternation checks invariant 12 in the events that a hub recorded for each allocation: an absent node does not
// disconnect again, and only an absent node reconnects. If old events were dropped, the first one may be any.
func (q *quietJudge) checkAlternation(h Hub) {
	for _, id := range sorted(h.AllocHistory) {
		last := ""
		for _, e := range h.AllocHistory[id] {
			if e.Side != fleet.SideHub || !partition[e.Event] {
				continue
			}
			revoked := e.Event == fleet.EventNodeDown && strings.HasPrefix(e.Message, "revoked") // of a node that may be down already
			if last != "" && !revoked && (last == e.Event || last == fleet.EventNodeDown && e.Event == fleet.EventNodeDisconnected) {
				q.addViolation(LegalHistory, "%s, allocation %s: %q at index %d follows %q", h.Name, fleet.Short(id), e.Event, e.Index, last)
			}
			last = e.Event
		}
	}
}

// partition has the events that begin and end the absence of a node.
var partition = map[string]bool{
	fleet.EventNodeDisconnected: true, fleet.EventNodeDown: true, fleet.EventNodeReconnected: true,
}

// checkReported checks a result of invariant 1: for each allocation a hub has the last status that the edge journaled.
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

// happening identifies a row among all rows of its edge, even after its number changed.
type happening struct {
	boot  fleet.BootID
	mono  int64
	wall  int64
	kind  fleet.TransitionKind
	alloc fleet.AllocID
	task  string
	event string
}

// happeningOf returns the identity of a row.
func happeningOf(t fleet.Transition) happening {
	h := happening{boot: t.BootID, mono: int64(t.Mono), wall: t.Wall, kind: t.Kind, alloc: t.Alloc, task: t.Task}
	if t.Event != nil {
		h.event = t.Event.Type
	}
	return h
}

// checkLossReported checks invariant 1 for a damaged journal: the gap rows at the hub count each row that the
// edge had journaled and that the hub lacks. A gap row without a count stands for any number. Rows that the hub
// dropped at its own bound are not lost.
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
	for _, row := range e.Before { // rows of a journal that was damaged twice are in it twice
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
		h.Name, len(lost), e.Name, spoken, lost[0].Seq, describeRow(lost[0]))
}
