package api

import (
	"time"

	"skerry/fleet"
)

// FleetStatus is an overview of the whole fleet.
type FleetStatus struct {
	Time    time.Time // hub's clock
	Index   fleet.Index
	Region  string
	Term    uint64
	Leader  fleet.HubID // "": none is known
	Hubs    []HubStatus
	Sites   []SiteStatus // by datacenter
	Nodes   []NodeLine
	Allocs  map[string]int // by client status, without those that have ended
	Waiting []WaitingLine  // evaluations, allocations and nodes that wait
}

// HubStatus is one hub in a FleetStatus.
type HubStatus struct {
	ID     fleet.HubID
	QUIC   string
	HTTP   string
	Status string // in gossip: "alive", "failed", "left"; "": unknown
	Leader bool
}

// SiteStatus counts one site's nodes and allocations.
type SiteStatus struct {
	Site   string
	Nodes  map[fleet.NodeStatus]int
	Allocs map[string]int
}

// NodeLine is one node in a FleetStatus.
type NodeLine struct {
	ID                fleet.NodeID
	Name              string
	Datacenter        string
	Site              string
	NodePool          string
	Status            fleet.NodeStatus
	StatusDescription string
	Hub               fleet.HubID
	LastContact       *time.Time // by the leader's clock; nil: none since it leads
	DisconnectedAt    *time.Time // time of the last contact before its absence
	Allocs            map[string]int
	Fenced            []fleet.FencedSession `json:",omitempty"`
	Newcomer          *fleet.FencedSession  `json:",omitempty"` // an agent process that waits for the end of another's session
	Orphans           []fleet.AllocID       `json:",omitempty"` // on the edge, and not known to the cluster
	Revoked           bool                  `json:",omitempty"` // expelled: it may still run its Orphans
}

// WaitingLine is an evaluation, allocation or node that waits for something.
type WaitingLine struct {
	Kind string // "evaluation", "allocation" or "node"
	ID   string
	Of   string     // the job
	For  string     // what it waits for
	At   *time.Time `json:",omitempty"` // when the wait ends; nil: it does not end at a time
}
