package fleet

import (
	"time"
)

// HistorySide says who wrote a HistoryEntry.
type HistorySide string

// The sides of a history.
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

// EventGap marks lost rows in a node's record: its edge's journal dropped them before the cluster
// had them.
const EventGap = "gap"

// Events of the hub that begin and end a partition in an allocation's record.
const (
	EventNodeDisconnected = "node disconnected"
	EventNodeDown         = "node down"
	EventNodeReconnected  = "node reconnected"
)
