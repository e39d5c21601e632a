package fleet

import (
	"slices"
	"time"
)

// HistorySide says who wrote a HistoryEntry.
type HistorySide string

const (
	SideEdge HistorySide = "edge"
	SideHub  HistorySide = "hub"
)

// HistoryEntry is a line of an allocation's timeline: a journal row of its edge,
// or a decision of the hub. Entries of one side are in the order in which they
// happened; how the two sides interleave is for people.
type HistoryEntry struct {
	Side       HistorySide
	Index      Index // the Raft entry that brought it to the cluster
	AllocID    AllocID
	NodeID     NodeID
	Transition *Transition `json:",omitempty"` // Side edge
	// Side hub: what was decided, why, and when by the hub's clock.
	Event   string `json:",omitempty"` // "placed", "unknown", "reconnected", "lost", "stop", "node disconnected", …
	Message string `json:",omitempty"`
	Time    time.Time
	Gone    uint64 `json:",omitempty"` // of EventGap: how many rows; 0: an older release did not say
	Offline bool   // happened while the link was gone
	// Since is when what an event tells began, where that was before Time: of a node that
	// missed its deadline when it was last heard of.
	Since *time.Time `json:",omitempty"`
}

// EventGap is in a node's record where rows are gone from its edge's journal that the
// cluster had not taken.
const EventGap = "gap"

// Events of the hub that begin and end a partition in an allocation's record.
const (
	EventNodeDisconnected = "node disconnected"
	EventNodeDown         = "node down"
	EventNodeReconnected  = "node reconnected"
)

// Timeline orders an allocation's record for people: what happened while the link was
// gone stands before the session that brought it, though the cluster heard of it only
// afterwards. Each side keeps its own order, and a row that the cluster had when the
// hub decided something stands before that. The clocks of edge and hub are compared
// only within a partition, where nothing else tells which came first.
func Timeline(entries []HistoryEntry) []HistoryEntry {
	var edge, hub []HistoryEntry
	for _, e := range entries {
		if e.Side == SideEdge {
			edge = append(edge, e)
		} else {
			hub = append(hub, e)
		}
	}
	returns := returnIndexes(hub)
	late := lateRows(edge, returns)
	out := make([]HistoryEntry, 0, len(entries))
	for len(edge) > 0 && len(hub) > 0 {
		if edgeFirst(edge[0], late[0], hub[0], returns) {
			out, edge, late = append(out, edge[0]), edge[1:], late[1:]
		} else {
			out, hub = append(out, hub[0]), hub[1:]
		}
	}
	return append(append(out, edge...), hub...)
}

// returnIndexes lists the indexes at which the node was back, in ascending order.
func returnIndexes(hub []HistoryEntry) []Index {
	var returns []Index
	for _, h := range hub {
		if h.Event == EventNodeReconnected {
			returns = append(returns, h.Index)
		}
	}
	slices.Sort(returns)
	return returns
}

// lateRows says which rows the cluster heard of only in the session after a partition:
// those from the partition, and what came in with them and stands before them in the
// journal.
func lateRows(edge []HistoryEntry, returns []Index) []bool {
	late := make([]bool, len(edge))
	for i := len(edge) - 1; i >= 0; i-- {
		late[i] = edge[i].Offline
		if i+1 < len(edge) && late[i+1] {
			back := lastReturn(returns, edge[i+1].Index)
			late[i] = late[i] || back > 0 && edge[i].Index > back
		}
	}
	return late
}

// lastReturn is the index at which the node was last back before another one; 0: never.
func lastReturn(returns []Index, before Index) Index {
	if i, _ := slices.BinarySearch(returns, before); i > 0 {
		return returns[i-1]
	}
	return 0
}

// edgeFirst reports whether a row stands before the next of the hub's entries.
func edgeFirst(row HistoryEntry, late bool, hub HistoryEntry, returns []Index) bool {
	if row.Index <= hub.Index {
		return true
	}
	if !late {
		return false
	}
	if hub.Event == EventNodeReconnected {
		return lastReturn(returns, row.Index) <= hub.Index
	}
	return row.Time.Before(hub.Time)
}

// Apart says, for each entry of a Timeline, whether it happened while the link was
// gone, as far as either side knows.
func Apart(timeline []HistoryEntry) []bool {
	apart := make([]bool, len(timeline))
	away := false
	for i, e := range timeline {
		switch {
		case e.Side == SideEdge:
			away = e.Offline
		case e.Event == EventNodeDisconnected, e.Event == EventNodeDown:
			away = true
		case e.Event == EventNodeReconnected:
			away = false
		}
		apart[i] = away
	}
	return apart
}
