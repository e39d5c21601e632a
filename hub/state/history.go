package state

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// What an allocation's and a node's record hold at most: entries, and bytes of
// what they say. A record is written to a snapshot as one piece (maxRecord).
const (
	historyKept  = 256
	historyBytes = 1 << 20
)

// history is a bounded record. Entries are shared between the versions of a row:
// a newer version only appends behind what older ones can see. Journal rows are
// kept as their edge encoded them, which is a tenth of what they take decoded.
type history struct {
	entries []historyEntry
	bytes   int // of all entries
	dropped uint64
}

type historyEntry struct {
	index    fleet.Index
	row      []byte    // of the edge, or
	hubEvent *hubEvent // of the hub
	offline  bool
	vital    bool // goes last when room is needed
}

// hubEvent is what the hub decided or noticed.
type hubEvent struct {
	Event   string
	Message string
	Node    fleet.NodeID
	Time    int64  // UnixNano
	Gone    uint64 // of a gap: how many rows
	// Since is when what it tells began (UnixNano), where that is before Time; 0: at Time.
	Since int64 `cbor:",omitempty"`
}

func (e *historyEntry) entryBytes() int {
	if e.hubEvent != nil {
		return len(e.hubEvent.Event) + len(e.hubEvent.Message)
	}
	return len(e.row)
}

// appendEntries appends entries; where there is no room others go, one for one.
func (h *history) appendEntries(entries ...historyEntry) {
	own := false // whether this version has the entries for itself
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

// cloneHistory is a copy that shares nothing: of a state that goes on beside.
func (h history) cloneHistory() history {
	h.entries = slices.Clone(h.entries)
	return h
}

// leastVitalIndex is what goes next: the oldest entry that is not vital, or else the oldest that
// tells of no loss. What is said of rows that are gone is never let go for what is there.
func (h *history) leastVitalIndex() int {
	if i := slices.IndexFunc(h.entries, func(e historyEntry) bool { return !e.vital }); i >= 0 {
		return i
	}
	return max(0, slices.IndexFunc(h.entries, func(e historyEntry) bool { return !e.recordsLoss() }))
}

func (e *historyEntry) recordsLoss() bool {
	if e.hubEvent != nil {
		return e.hubEvent.Event == fleet.EventGap
	}
	tr, err := syncproto.DecodeRow(e.row)
	return err == nil && tr.Kind == fleet.TransitionGap
}

// decodedEntries decodes the record for people.
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

// recordNodeEvent notes something in a node's record.
func (t *tx) recordNodeEvent(n *nodeRow, event, message string, now int64) {
	t.addNodeMark(n, &hubEvent{Event: event, Message: message, Node: n.ID, Time: now})
}

func (t *tx) addNodeMark(n *nodeRow, m *hubEvent) {
	n.history.appendEntries(historyEntry{index: t.index, vital: true, hubEvent: m})
}

// recordOnAllocs notes something in the record of each allocation that may be alive
// on a node: also where it was given up for lost, until its edge says that it ended.
// It does not change the allocations otherwise.
func (t *tx) recordOnAllocs(n *nodeRow, event, message string, now int64) {
	t.addAllocMarks(n, &hubEvent{Event: event, Message: message, Node: n.ID, Time: now})
}

func (t *tx) addAllocMarks(n *nodeRow, m *hubEvent) {
	for _, id := range t.allocsOn(n.ID) {
		a := t.currentAlloc(id)
		if given := a.ClientStatus == fleet.ClientLost && !a.EndedOnEdge(); given || !a.ClientTerminal() {
			t.ownAlloc(id).history.appendEntries(historyEntry{index: t.index, vital: true, hubEvent: m})
		}
	}
}

// History is an allocation's record as the cluster has it: hub's and edge's
// entries, each side in its order; HistoryDropped counts what the bound took.
func (v *View) History(id fleet.AllocID) []fleet.HistoryEntry {
	row, ok := allocTable.watchRow(v, idKey(id))
	if !ok {
		return nil
	}
	return row.history.decodedEntries(row.ID, row.NodeID)
}

// HistoryAt is what one entry added to an allocation's record. It costs what it
// returns, and not what the record holds.
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

// NodeHistory is the record of a node: sessions, partitions, fences, and journal
// rows that name no allocation that the cluster knows.
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

// HistoryDropped counts what the bound took of an allocation's record.
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

func (h *history) toSavedHistory() savedHistory {
	s := savedHistory{Dropped: h.dropped}
	for _, e := range h.entries {
		s.Entries = append(s.Entries, savedEntry{e.index, e.row, e.hubEvent, e.offline, e.vital})
	}
	return s
}

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
