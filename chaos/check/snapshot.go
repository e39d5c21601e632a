package check

import (
	"fmt"
	"strings"
	"time"

	"skerry/fleet"
)

// FleetSnapshot is what was seen when everything was quiet.
type FleetSnapshot struct {
	Hubs  []Hub
	Edges []Edge
	// Wanted is how many allocations of each job shall run.
	Wanted map[fleet.JobID]int
	// Starts is how often each allocation's task was ever started, as the tasks
	// themselves told; an allocation whose task tells nothing is not in it.
	Starts map[fleet.AllocID]int
}

// Hub is one hub's state.
type Hub struct {
	Name string
	// Of a hub that is looked at while a run goes on.
	Index fleet.Index `json:",omitempty"`
	Term  uint64      `json:",omitempty"`
	Leads bool        `json:",omitempty"`
	// State is a fingerprint of all that the hub holds at Index, of a snapshot; "": unknown.
	State string `json:",omitempty"`

	Nodes       []fleet.Node
	Allocs      []fleet.Alloc
	Evals       []fleet.Evaluation `json:",omitempty"`
	Deployments []fleet.Deployment `json:",omitempty"` // that go on
	Catalogue   *Catalogue         `json:",omitempty"` // of services; nil: not looked at

	NodeHistory  map[fleet.NodeID][]fleet.HistoryEntry  `json:",omitempty"`
	AllocHistory map[fleet.AllocID][]fleet.HistoryEntry `json:",omitempty"`
	// Dropped counts what the hub let go of each allocation's history, at its
	// bound.
	Dropped map[fleet.AllocID]uint64 `json:",omitempty"`
}

// Catalogue is a hub's catalogue of services.
type Catalogue struct {
	Index  fleet.Index // of its newest change, as those are told who follow it
	Offers []Offer     `json:",omitempty"` // in the order of allocations
}

// Offer is one service of an allocation.
type Offer struct {
	Service string
	Alloc   fleet.AllocID
	Status  string
}

// Edge is one edge: its journal, and what really runs there.
type Edge struct {
	Name   string
	NodeID fleet.NodeID
	// Rows are what its journal holds; while a run goes on, those that it did not
	// hold when it was looked at last.
	Rows []fleet.Transition
	// Before are rows that the journal was seen to hold before it was damaged.
	Before []fleet.Transition
	// Replaced says that a person gave the machine the data of its clone: what it held
	// before is nobody's any more.
	Replaced bool `json:",omitempty"`
	// Processes counts the live processes of each task; nil: nobody looked.
	Processes map[TaskKey]int `json:",omitempty"`
	// Link and Journal are where it stands, of an edge that is looked at while a run
	// goes on; nil: its agent does not run, or was not asked.
	Link    *Link    `json:",omitempty"`
	Journal *Journal `json:",omitempty"`
	// AgentSince is when the agent that gave this answer was started (UnixNano of the edge's
	// clock): the answer of one that was killed may be seen after its end. 0: answers are seen
	// as soon as they are given.
	AgentSince int64 `json:",omitempty"`
}

// Link is an edge's link as the edge sees it.
type Link struct {
	Connected bool // a beat of the present session was answered
	Session   uint64
	Epoch     fleet.Epoch
	Status    fleet.NodeStatus // as a hub said last
	Away      time.Duration    // since the last answered beat, in machine time; 0: there was none
	NextTry   time.Duration    // until the next attempt; 0: none is waiting
	WentBack  string           `json:",omitempty"` // how the cluster fell behind what it had said
	Fenced    string           `json:",omitempty"`
}

// Journal is what an edge's journal holds.
type Journal struct {
	First, Last, Acknowledged fleet.Seq
	Bytes                     int64
	Dropped                   uint64 // ever, at its bound
	Lost                      string `json:",omitempty"` // why rows may be missing that no hub was told of yet
}

// TaskKey names a task of an allocation.
type TaskKey struct {
	Alloc fleet.AllocID
	Task  string
}

// MarshalText and UnmarshalText let a TaskKey be a key in JSON.
func (k TaskKey) MarshalText() ([]byte, error) { return []byte(string(k.Alloc) + "/" + k.Task), nil }

// UnmarshalText reads what MarshalText gave.
func (k *TaskKey) UnmarshalText(text []byte) error {
	alloc, task, ok := strings.Cut(string(text), "/")
	if !ok {
		return fmt.Errorf("decode task %q: it has no slash", text)
	}
	*k = TaskKey{fleet.AllocID(alloc), task}
	return nil
}

// String returns the short id of the allocation and the name of the task.
func (k TaskKey) String() string { return fleet.Short(k.Alloc) + "/" + k.Task }
