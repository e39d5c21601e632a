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
	Allocs  map[string]int // by client status, of those that shall run
	Waiting []WaitingLine  // what is waiting for whom
}

// HubStatus is one hub in a FleetStatus.
type HubStatus struct {
	ID     fleet.HubID
	QUIC   string
	HTTP   string
	Status string // gossip's: "alive", "failed", "left", or "" where it does not know
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
	LastContact       *time.Time // as the leader heard it; nil: not since it leads
	DisconnectedAt    *time.Time // since when it is away
	Allocs            map[string]int
	Fenced            []fleet.FencedSession `json:",omitempty"`
	Newcomer          *fleet.FencedSession  `json:",omitempty"` // an agent process that waits for the end of another's session
	Orphans           []fleet.AllocID       `json:",omitempty"` // kept there, not known to the cluster
	Revoked           bool                  `json:",omitempty"` // expelled: Orphans are what it may still run
}

// WaitingLine is an evaluation, allocation or node that waits for something.
type WaitingLine struct {
	Kind string // "evaluation", "allocation" or "node"
	ID   string
	Of   string     // the job
	For  string     // what it waits for
	At   *time.Time `json:",omitempty"` // when it goes on by itself; nil: not by time
}
