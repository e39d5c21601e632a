package state

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// Bounds of the history of an allocation or a node, in entries and bytes. A history is one record
// of a snapshot, which may have maxRecord bytes.
const (
	historyKept  = 256
	historyBytes = 1 << 20
)

// history is the bounded history of an allocation or a node. Versions of a row share the entries: a newer
// version only appends after those that older versions see. Journal rows stay encoded, in a tenth of their
// decoded size.
type history struct {
	entries []historyEntry
	bytes   int    // size of all entries
	dropped uint64 // number of entries that were removed for room
}

// historyEntry is one entry of a history: either a journal row of the edge, or an event of the hub.
type historyEntry struct {
	index    fleet.Index
	row      []byte    // of the edge's journal, as encoded; nil: hubEvent is set
	hubEvent *hubEvent // of the hub; nil: row is set
	offline  bool      // the edge wrote the row while it had no link
	vital    bool      // removed only when no other entries are left
}

// hubEvent is a decision or an observation of the hub.
type hubEvent struct {
	Event   string
	Message string
	Node    fleet.NodeID
	Time    int64  // UnixNano
	Gone    uint64 // with fleet.EventGap: the number of lost rows
	// Since is when the reported state began (UnixNano), if that was before Time; else 0.
	Since int64 `cbor:",omitempty"`
}

// entryBytes returns the size that counts for the bound of a history.
func (e *historyEntry) entryBytes() int {
	if e.hubEvent != nil {
		return len(e.hubEvent.Event) + len(e.hubEvent.Message)
	}
	return len(e.row)
}

// appendEntries appends entries. At the bounds it removes others, the least important first.
func (h *history) appendEntries(entries ...historyEntry) {
	own := false // h.entries is a copy that older versions do not share
	for _, e := range entries {
		for len(h.entries) >= historyKept || len(h.entries) > 0 && h.bytes+e.entryBytes() > historyBytes {
			if !own {
				h.entries, own = slices.Clone(h.entries), true
			}
			i := h.leastVitalIndex()
			h.bytes -= h.entries[i].entryBytes()
			h.entries = slices.Delete(h.entries, i, i+1)
			h.dropped++
		}
		h.entries = append(h.entries, e)
		h.bytes += e.entryBytes()
	}
}

// cloneHistory returns a copy that shares no entry list with h, for a second state that also appends.
func (h history) cloneHistory() history {
	h.entries = slices.Clone(h.entries)
	return h
}

// leastVitalIndex returns the entry to remove next: the oldest that is not vital, else the oldest that
// does not record lost rows. An entry about lost rows is removed last.
func (h *history) leastVitalIndex() int {
	if i := slices.IndexFunc(h.entries, func(e historyEntry) bool { return !e.vital }); i >= 0 {
		return i
	}
	return max(0, slices.IndexFunc(h.entries, func(e historyEntry) bool { return !e.recordsLoss() }))
}

// recordsLoss reports whether the entry says that rows were lost.
func (e *historyEntry) recordsLoss() bool {
	if e.hubEvent != nil {
		return e.hubEvent.Event == fleet.EventGap
	}
	tr, err := syncproto.DecodeRow(e.row)
	return err == nil && tr.Kind == fleet.TransitionGap
}

// decodedEntries decodes the history for the API. A row that cannot be decoded becomes an entry with the
// error.
func (h *history) decodedEntries(alloc fleet.AllocID, node fleet.NodeID) []fleet.HistoryEntry {
	out := make([]fleet.HistoryEntry, 0, len(h.entries))
	for _, e := range h.entries {
		entry := fleet.HistoryEntry{Index: e.index, AllocID: alloc, NodeID: node, Offline: e.offline}
		if e.hubEvent != nil {
			entry.Side, entry.Event, entry.Message = fleet.SideHub, e.hubEvent.Event, e.hubEvent.Message
			entry.NodeID, entry.Time = e.hubEvent.Node, time.Unix(0, e.hubEvent.Time).UTC()
			entry.Gone = e.hubEvent.Gone
			if e.hubEvent.Since != 0 {
				since := time.Unix(0, e.hubEvent.Since).UTC()
				entry.Since = &since
			}
		} else {
			entry.Side = fleet.SideEdge
			if tr, err := syncproto.DecodeRow(e.row); err == nil {
				entry.Transition = &tr
				entry.Time = time.Unix(0, tr.Wall).UTC()
			} else {
				entry.Message = err.Error()
			}
		}
		out = append(out, entry)
	}
	return out
}

// recordNodeEvent appends a vital hub event to a node's history. n must be the entry's own copy. The
// events that users see of a node are separate: see addNodeEvent.
func (t *tx) recordNodeEvent(n *nodeRow, event, message string, now int64) {
	t.addNodeHistory(n, &hubEvent{Event: event, Message: message, Node: n.ID, Time: now})
}

// addNodeHistory appends m to a node's history as a vital entry.
func (t *tx) addNodeHistory(n *nodeRow, m *hubEvent) {
	n.history.appendEntries(historyEntry{index: t.index, vital: true, hubEvent: m})
}

// recordOnAllocs appends a vital hub event to the history of each allocation that may run on a node, also
// of a lost one until its edge reports its end. It changes nothing else of the allocations.
func (t *tx) recordOnAllocs(n *nodeRow, event, message string, now int64) {
	t.addAllocHistory(n, &hubEvent{Event: event, Message: message, Node: n.ID, Time: now})
}

// addAllocHistory appends m to the history of each allocation that may run on the node.
func (t *tx) addAllocHistory(n *nodeRow, m *hubEvent) {
	for _, id := range t.allocsOn(n.ID) {
		a := t.currentAlloc(id)
		if given := a.ClientStatus == fleet.ClientLost && !a.EndedOnEdge(); given || !a.ClientTerminal() {
			t.ownAlloc(id).history.appendEntries(historyEntry{index: t.index, vital: true, hubEvent: m})
		}
	}
}

// History returns an allocation's history: entries of the hub and of the edge, each side in its own order.
// Old entries may be missing: see HistoryDropped.
func (v *View) History(id fleet.AllocID) []fleet.HistoryEntry {
	row, ok := allocTable.watchRow(v, idKey(id))
	if !ok {
		return nil
	}
	return row.history.decodedEntries(row.ID, row.NodeID)
}

// HistoryAt returns the entries that one log entry added to an allocation's history. It decodes only
// these.
func (v *View) HistoryAt(id fleet.AllocID, index fleet.Index) []fleet.HistoryEntry {
	row, ok := allocTable.watchRow(v, idKey(id))
	if !ok {
		return nil
	}
	end := len(row.history.entries)
	for end > 0 && row.history.entries[end-1].index > index {
		end--
	}
	first := end
	for first > 0 && row.history.entries[first-1].index == index {
		first--
	}
	added := history{entries: row.history.entries[first:end]}
	return added.decodedEntries(row.ID, row.NodeID)
}

// NodeHistory returns a node's history: sessions, lost links, fenced sessions, and journal rows that name
// no allocation, or one that the cluster does not know.
func (v *View) NodeHistory(id fleet.NodeID) []fleet.HistoryEntry {
	row, ok := nodeTable.watchRow(v, idKey(id))
	if !ok {
		return nil
	}
	out := row.history.decodedEntries("", id)
	for i, e := range out {
		if e.Transition != nil {
			out[i].AllocID = e.Transition.Alloc
		}
	}
	return out
}

// HistoryDropped returns the number of entries that were removed from an allocation's history at its
// bounds.
func (v *View) HistoryDropped(id fleet.AllocID) uint64 {
	if row, ok := allocTable.watchRow(v, idKey(id)); ok {
		return row.history.dropped
	}
	return 0
}

type (
	savedHistory struct {
		Entries []savedEntry
		Dropped uint64
	}
	savedEntry struct {
		Index   fleet.Index
		Row     []byte
		Mark    *hubEvent
		Offline bool
		Vital   bool
	}
)

// toSavedHistory converts the history for a snapshot.
func (h *history) toSavedHistory() savedHistory {
	s := savedHistory{Dropped: h.dropped}
	for _, e := range h.entries {
		s.Entries = append(s.Entries, savedEntry{e.index, e.row, e.hubEvent, e.offline, e.vital})
	}
	return s
}

// toHistory converts the history from a snapshot, and counts its bytes.
func (s savedHistory) toHistory() history {
	h := history{dropped: s.Dropped}
	if len(s.Entries) > 0 {
		h.entries = make([]historyEntry, 0, len(s.Entries))
	}
	for _, e := range s.Entries {
		entry := historyEntry{e.Index, e.Row, e.Mark, e.Offline, e.Vital}
		h.entries = append(h.entries, entry)
		h.bytes += entry.entryBytes()
	}
	return h
}
