// Package timeline orders an allocation's record for people. The HTTP API and the history command
// call it.
//
// It is pure: it starts no goroutine, reads no clock and does no I/O.
package timeline

import (
	"slices"

	"skerry/fleet"
)

// Order merges the rows of the edge and the decisions of the hub, each in its own order. A row
// that the cluster had when the hub decided comes first; a row from a partition comes before the
// session that brought it. Clocks are compared only within a partition.
func Order(entries []fleet.HistoryEntry) []fleet.HistoryEntry {
	var edge, hub []fleet.HistoryEntry
	for _, e := range entries {
		if e.Side == fleet.SideEdge {
			edge = append(edge, e)
		} else {
			hub = append(hub, e)
		}
	}
	returns := returnIndexes(hub)
	late := lateRows(edge, returns)
	out := make([]fleet.HistoryEntry, 0, len(entries))
	for len(edge) > 0 && len(hub) > 0 {
		if edgeFirst(edge[0], late[0], hub[0], returns) {
			out, edge, late = append(out, edge[0]), edge[1:], late[1:]
		} else {
			out, hub = append(out, hub[0]), hub[1:]
		}
	}
	return append(append(out, edge...), hub...)
}

// returnIndexes lists the indexes at which the node reconnected, in ascending order.
func returnIndexes(hub []fleet.HistoryEntry) []fleet.Index {
	var returns []fleet.Index
	for _, h := range hub {
		if h.Event == fleet.EventNodeReconnected {
			returns = append(returns, h.Index)
		}
	}
	slices.Sort(returns)
	return returns
}

// lateRows marks the rows that the cluster got only in the session after a partition: those from
// the partition, and earlier rows of the journal that the same session brought.
func lateRows(edge []fleet.HistoryEntry, returns []fleet.Index) []bool {
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

// lastReturn returns the index of the last reconnection before another index; 0: none.
func lastReturn(returns []fleet.Index, before fleet.Index) fleet.Index {
	if i, _ := slices.BinarySearch(returns, before); i > 0 {
		return returns[i-1]
	}
	return 0
}

// edgeFirst reports whether a row stands before the hub's next entry.
func edgeFirst(row fleet.HistoryEntry, late bool, hub fleet.HistoryEntry, returns []fleet.Index) bool {
	if row.Index <= hub.Index {
		return true
	}
	if !late {
		return false
	}
	if hub.Event == fleet.EventNodeReconnected {
		return lastReturn(returns, row.Index) <= hub.Index
	}
	return row.Time.Before(hub.Time)
}

// Apart says of each ordered entry whether it happened without a link, as far as either side
// knows.
func Apart(timeline []fleet.HistoryEntry) []bool {
	apart := make([]bool, len(timeline))
	away := false
	for i, e := range timeline {
		switch {
		case e.Side == fleet.SideEdge:
			away = e.Offline
		case e.Event == fleet.EventNodeDisconnected, e.Event == fleet.EventNodeDown:
			away = true
		case e.Event == fleet.EventNodeReconnected:
			away = false
		}
		apart[i] = away
	}
	return apart
}
