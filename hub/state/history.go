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
	index   fleet.Index
	row     []byte // of the edge, or
	mark    *mark  // of the hub
	offline bool
	vital   bool // goes last when room is needed
}

// mark is what the hub decided or noticed.
type mark struct {
	Event   string
	Message string
	Node    fleet.NodeID
	Time    int64  // UnixNano
	Gone    uint64 // of a gap: how many rows
	// Since is when what it tells began (UnixNano), where that is before Time; 0: at Time.
	Since int64 `cbor:",omitempty"`
}

func (e *historyEntry) size() int {
	if e.mark != nil {
		return len(e.mark.Event) + len(e.mark.Message)
	}
	return len(e.row)
}

// add appends entries; where there is no room others go, one for one.
func (h *history) add(entries ...historyEntry) {
	own := false // whether this version has the entries for itself
	for _, e := range entries {
		for len(h.entries) >= historyKept || len(h.entries) > 0 && h.bytes+e.size() > historyBytes {
			if !own {
				h.entries, own = slices.Clone(h.entries), true
			}
			i := h.least()
			h.bytes -= h.entries[i].size()
			h.entries = slices.Delete(h.entries, i, i+1)
			h.dropped++
		}
		h.entries = append(h.entries, e)
		h.bytes += e.size()
	}
}

// own is a copy that shares nothing: of a state that goes on beside.
func (h history) own() history {
	h.entries = slices.Clone(h.entries)
	return h
}

// least is what goes next: the oldest entry that is not vital, or else the oldest that
// tells of no loss. What is said of rows that are gone is never let go for what is there.
func (h *history) least() int {
	if i := slices.IndexFunc(h.entries, func(e historyEntry) bool { return !e.vital }); i >= 0 {
		return i
	}
	return max(0, slices.IndexFunc(h.entries, func(e historyEntry) bool { return !e.tellsOfLoss() }))
}

func (e *historyEntry) tellsOfLoss() bool {
	if e.mark != nil {
		return e.mark.Event == fleet.EventGap
	}
	tr, err := syncproto.DecodeRow(e.row)
	return err == nil && tr.Kind == fleet.TransitionGap
}

// list decodes the record for people.
func (h *history) list(alloc fleet.AllocID, node fleet.NodeID) []fleet.HistoryEntry {
	out := make([]fleet.HistoryEntry, 0, len(h.entries))
	for _, e := range h.entries {
		entry := fleet.HistoryEntry{Index: e.index, AllocID: alloc, NodeID: node, Offline: e.offline}
		if e.mark != nil {
			entry.Side, entry.Event, entry.Message = fleet.SideHub, e.mark.Event, e.mark.Message
			entry.NodeID, entry.Time = e.mark.Node, time.Unix(0, e.mark.Time).UTC()
			entry.Gone = e.mark.Gone
			if e.mark.Since != 0 {
				since := time.Unix(0, e.mark.Since).UTC()
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

// nodeMark notes something in a node's record.
func (t *tx) nodeMark(n *nodeRow, event, message string, now int64) {
	t.addNodeMark(n, &mark{Event: event, Message: message, Node: n.ID, Time: now})
}

func (t *tx) addNodeMark(n *nodeRow, m *mark) {
	n.history.add(historyEntry{index: t.index, vital: true, mark: m})
}

// markAllocs notes something in the record of each allocation that may be alive
// on a node: also where it was given up for lost, until its edge says that it ended.
// It does not change the allocations otherwise.
func (t *tx) markAllocs(n *nodeRow, event, message string, now int64) {
	t.addAllocMarks(n, &mark{Event: event, Message: message, Node: n.ID, Time: now})
}

func (t *tx) addAllocMarks(n *nodeRow, m *mark) {
	for _, id := range t.allocsOn(n.ID) {
		a := t.alloc(id)
		if given := a.ClientStatus == fleet.ClientLost && !a.EndedOnEdge(); given || !a.ClientTerminal() {
			t.ownAlloc(id).history.add(historyEntry{index: t.index, vital: true, mark: m})
		}
	}
}

// History is an allocation's record as the cluster has it: hub's and edge's
// entries, each side in its order; HistoryDropped counts what the bound took.
func (v *View) History(id fleet.AllocID) []fleet.HistoryEntry {
	row, ok := one[allocRow](v, tableAllocs, key(string(id)))
	if !ok {
		return nil
	}
	return row.history.list(row.ID, row.NodeID)
}

// HistoryAt is what one entry added to an allocation's record. It costs what it
// returns, and not what the record holds.
func (v *View) HistoryAt(id fleet.AllocID, index fleet.Index) []fleet.HistoryEntry {
	row, ok := one[allocRow](v, tableAllocs, key(string(id)))
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
	return added.list(row.ID, row.NodeID)
}

// NodeHistory is the record of a node: sessions, partitions, fences, and journal
// rows that name no allocation that the cluster knows.
func (v *View) NodeHistory(id fleet.NodeID) []fleet.HistoryEntry {
	row, ok := one[nodeRow](v, tableNodes, key(string(id)))
	if !ok {
		return nil
	}
	out := row.history.list("", id)
	for i, e := range out {
		if e.Transition != nil {
			out[i].AllocID = e.Transition.Alloc
		}
	}
	return out
}

// HistoryDropped counts what the bound took of an allocation's record.
func (v *View) HistoryDropped(id fleet.AllocID) uint64 {
	if row, ok := one[allocRow](v, tableAllocs, key(string(id))); ok {
		return row.history.dropped
	}
	return 0
}
