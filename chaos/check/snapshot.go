package check

import (
	"fmt"
	"strings"
	"time"

	"skerry/fleet"
)

// FleetSnapshot is the state of all hubs and edges at a moment at which the fleet had nothing left to do.
type FleetSnapshot struct {
	Hubs  []Hub
	Edges []Edge
	// Wanted is the number of allocations of each job that have to run.
	Wanted map[fleet.JobID]int
	// Starts counts the starts of each allocation's task, as the tasks themselves
	// reported them. An allocation whose task reports none is not in it.
	Starts map[fleet.AllocID]int
}

// Hub is the state of one hub.
type Hub struct {
	Name string
	// Index, Term and Leads are set where a hub is polled while a run goes on.
	Index fleet.Index `json:",omitempty"`
	Term  uint64      `json:",omitempty"`
	Leads bool        `json:",omitempty"`
	// State is a digest of the hub's whole state at Index, set in a FleetSnapshot; "": unknown.
	State string `json:",omitempty"`

	Nodes       []fleet.Node
	Allocs      []fleet.Alloc
	Evals       []fleet.Evaluation `json:",omitempty"`
	Deployments []fleet.Deployment `json:",omitempty"` // those that are active
	Catalogue   *Catalogue         `json:",omitempty"` // of services; nil: not polled
	// RepeatedActions describes the actions on edges that the hub keeps more than once.
	RepeatedActions []string `json:",omitempty"`

	NodeHistory  map[fleet.NodeID][]fleet.HistoryEntry  `json:",omitempty"`
	AllocHistory map[fleet.AllocID][]fleet.HistoryEntry `json:",omitempty"`
	// Dropped counts the entries that the hub dropped from each allocation's history, at the
	// history's bound.
	Dropped map[fleet.AllocID]uint64 `json:",omitempty"`
}

// Catalogue is the service catalogue of a hub.
type Catalogue struct {
	Index  fleet.Index // of its newest change, as blocking queries return it
	Offers []Offer     `json:",omitempty"` // in the order of allocations
}

// Offer is one service that an allocation registers.
type Offer struct {
	Service string
	Alloc   fleet.AllocID
	Status  string
}

// Edge is one edge: its journal, its link and the processes that really run there.
type Edge struct {
	Name   string
	NodeID fleet.NodeID
	// Rows are the rows of its journal; while a run goes on, those that are new since
	// the last poll.
	Rows []fleet.Transition
	// Before are rows that were observed in the journal before it was damaged.
	Before []fleet.Transition
	// Replaced says that a person gave the machine the data of its clone: its own rows from
	// before do not have to reach the hubs.
	Replaced bool `json:",omitempty"`
	// Processes counts the live processes of each task; nil: not observed.
	Processes map[TaskKey]int `json:",omitempty"`
	// Link and Journal are set where the edge is polled while a run goes on; nil: its
	// agent does not run, or was not polled.
	Link    *Link    `json:",omitempty"`
	Journal *Journal `json:",omitempty"`
	// AgentSince is when the agent that gave this answer was started (UnixNano of the edge's
	// clock). The answer of a killed agent may be observed after its end. 0: answers are
	// observed at once.
	AgentSince int64 `json:",omitempty"`
}

// Link is an edge's link as the edge sees it.
type Link struct {
	Connected bool // a heartbeat of the present session was answered
	Session   uint64
	Epoch     fleet.Epoch
	Status    fleet.NodeStatus // of the node, by a hub's last answer
	Away      time.Duration    // uptime since the last answered heartbeat; 0: there was none
	NextTry   time.Duration    // until the next attempt to connect; 0: none is planned
	WentBack  string           `json:",omitempty"` // how the hubs fell behind an earlier answer; "": they did not
	Fenced    string           `json:",omitempty"` // why the edge is fenced; "": it is not
}

// Journal is the extent of an edge's journal, by its agent.
type Journal struct {
	First, Last, Acknowledged fleet.Seq
	Bytes                     int64
	Dropped                   uint64 // number of rows that were ever dropped at its bound
	Lost                      string `json:",omitempty"` // why rows may be missing, until a hub knows; "": none are
}

// TaskKey identifies a task by its allocation and name.
type TaskKey struct {
	Alloc fleet.AllocID
	Task  string
}

// MarshalText returns "ALLOC/TASK", so that a TaskKey can be a key in JSON.
func (k TaskKey) MarshalText() ([]byte, error) { return []byte(string(k.Alloc) + "/" + k.Task), nil }

// UnmarshalText reads the form of MarshalText.
func (k *TaskKey) UnmarshalText(text []byte) error {
	alloc, task, ok := strings.Cut(string(text), "/")
	if !ok {
		return fmt.Errorf("decode task %q: no slash between allocation and task", text)
	}
	*k = TaskKey{fleet.AllocID(alloc), task}
	return nil
}

// String returns the short id of the allocation, a slash and the name of the task.
func (k TaskKey) String() string { return fleet.Short(k.Alloc) + "/" + k.Task }
