package history

import (
	"fmt"
	"maps"
	"slices"

	"skerry/chaos/check"
	"skerry/fleet"
)

// snapshotPart is a part of a snapshot: exactly one pointer is set. The parts of a snapshot are consecutive
// lines, Done is the last. A part has at most one history, or partRows rows of a journal.
type snapshotPart struct {
	Hub     *hubLine     `json:",omitempty"` // without histories
	History *historyPart `json:",omitempty"`
	Edge    *check.Edge  `json:",omitempty"` // without rows
	Rows    *rowsPart    `json:",omitempty"`
	Done    *snapshotEnd `json:",omitempty"`
}

// historyPart is the history of an allocation or of a node, at the hub of the newest Hub part.
type historyPart struct {
	Alloc   fleet.AllocID `json:",omitempty"`
	Node    fleet.NodeID  `json:",omitempty"`
	Entries []fleet.HistoryEntry
	Dropped uint64 `json:",omitempty"`
}

// rowsPart are rows from the journal of the edge of the newest Edge part.
type rowsPart struct {
	Before bool `json:",omitempty"` // the rows are from before the journal was damaged
	Rows   []fleet.Transition
}

// snapshotEnd is the last part of a snapshot, with the fields that belong to no hub or edge.
type snapshotEnd struct {
	Wanted map[fleet.JobID]int
	Starts map[fleet.AllocID]int
	Final  bool
}

// partRows bounds the rows of a journal in one part.
const partRows = 500

// encodeSnapshot returns the lines of a snapshot, with the job versions that no line had yet.
func (m *memory) encodeSnapshot(p *FleetSnapshot) []line {
	var lines []line
	add := func(part snapshotPart) { lines = append(lines, line{Picture: &part}) }
	for i := range p.Hubs {
		h := p.Hubs[i]
		h.NodeHistory, h.AllocHistory, h.Dropped = nil, nil, nil
		l, bodies := m.hubLine(&h)
		lines = append(lines, line{Picture: &snapshotPart{Hub: &l}, Bodies: bodies})
		addHistoryParts(&p.Hubs[i], add)
	}
	for i := range p.Edges {
		e := p.Edges[i]
		e.Rows, e.Before = nil, nil
		add(snapshotPart{Edge: &e})
		for chunk := range slices.Chunk(p.Edges[i].Rows, partRows) {
			add(snapshotPart{Rows: &rowsPart{Rows: chunk}})
		}
		for chunk := range slices.Chunk(p.Edges[i].Before, partRows) {
			add(snapshotPart{Rows: &rowsPart{Before: true, Rows: chunk}})
		}
	}
	add(snapshotPart{Done: &snapshotEnd{p.Wanted, p.Starts, p.Final}})
	return lines
}

// addHistoryParts calls add with a part for each node's and each allocation's history of a hub, sorted by id.
func addHistoryParts(h *check.Hub, add func(snapshotPart)) {
	for _, id := range slices.Sorted(maps.Keys(h.NodeHistory)) {
		add(snapshotPart{History: &historyPart{Node: id, Entries: h.NodeHistory[id]}})
	}
	for _, id := range slices.Sorted(maps.Keys(h.AllocHistory)) {
		add(snapshotPart{History: &historyPart{Alloc: id, Entries: h.AllocHistory[id], Dropped: h.Dropped[id]}})
	}
}

// snapshotAssembly builds a snapshot from its parts.
type snapshotAssembly struct {
	snapshot *check.FleetSnapshot // the parts so far; nil: no snapshot has begun
}

// addPart adds a part. It returns the snapshot when the part completes it, else nil. A part of a history or of
// rows before any hub or edge is an error.
func (a *snapshotAssembly) addPart(m *memory, p *snapshotPart) (*FleetSnapshot, error) {
	if a.snapshot == nil {
		a.snapshot = &check.FleetSnapshot{}
	}
	hubs, edges := a.snapshot.Hubs, a.snapshot.Edges
	switch {
	case p.Hub != nil:
		h := p.Hub.restoreHub(m)
		h.NodeHistory, h.AllocHistory = map[fleet.NodeID][]fleet.HistoryEntry{}, map[fleet.AllocID][]fleet.HistoryEntry{}
		h.Dropped = map[fleet.AllocID]uint64{}
		a.snapshot.Hubs = append(hubs, h)
	case p.History != nil && len(hubs) > 0:
		h := hubs[len(hubs)-1]
		if p.History.Node != "" {
			h.NodeHistory[p.History.Node] = p.History.Entries
		} else {
			h.AllocHistory[p.History.Alloc], h.Dropped[p.History.Alloc] = p.History.Entries, p.History.Dropped
		}
	case p.Edge != nil:
		a.snapshot.Edges = append(edges, *p.Edge)
	case p.Rows != nil && len(edges) > 0:
		e := &edges[len(edges)-1]
		if p.Rows.Before {
			e.Before = append(e.Before, p.Rows.Rows...)
		} else {
			e.Rows = append(e.Rows, p.Rows.Rows...)
		}
	case p.Done != nil:
		whole := &FleetSnapshot{FleetSnapshot: *a.snapshot, Final: p.Done.Final}
		whole.Wanted, whole.Starts = p.Done.Wanted, p.Done.Starts
		a.snapshot = nil
		return whole, nil
	default:
		return nil, fmt.Errorf("a part of a snapshot that says nothing, or of no hub or edge")
	}
	return nil, nil
}
