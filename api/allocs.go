package api

import (
	"skerry/fleet"
)

// AllocStub is an allocation in a list.
type AllocStub struct {
	ID                    fleet.AllocID
	EvalID                fleet.EvalID
	Name                  string
	Namespace             string
	NodeID                fleet.NodeID
	NodeName              string
	JobID                 fleet.JobID
	JobType               string
	JobVersion            uint64
	TaskGroup             string
	DesiredStatus         string
	DesiredDescription    string
	DesiredTransition     fleet.DesiredTransition
	Retired               bool `json:",omitempty"`
	ClientStatus          string
	ClientDescription     string
	TaskStates            map[string]fleet.TaskState
	Held                  *fleet.Hold `json:",omitempty"` // somebody on site stopped it; nil: nobody
	DeploymentStatus      *fleet.AllocDeployment
	FollowupEvalID        fleet.EvalID
	PreviousAllocation    fleet.AllocID
	NextAllocation        fleet.AllocID
	RescheduleTracker     *fleet.RescheduleTracker
	PreemptedAllocations  []fleet.AllocID `json:",omitempty"`
	PreemptedByAllocation fleet.AllocID   `json:",omitempty"`
	CreateIndex           fleet.Index
	ModifyIndex           fleet.Index
	CreateTime            int64
	ModifyTime            int64
	AllocatedResources    any `json:",omitempty"` // in the shape of an allocation; nil unless requested
}

// HistoryAnswer is an allocation's timeline of the records of hubs and its edge. Dropped counts the entries that the
// hubs removed at their bound, the least important first.
type HistoryAnswer struct {
	Alloc   AllocStub
	Entries []fleet.HistoryEntry
	Dropped uint64
}

// StreamFrame is a piece of a file, output or log in a framed stream.
type StreamFrame struct {
	Offset    int64  `json:",omitempty"`
	Data      []byte `json:",omitempty"`
	File      string `json:",omitempty"`
	FileEvent string `json:",omitempty"`
}

// AllocStopAnswer answers the stop of an allocation. EvalID is "" if it had ended or was stopping already.
type AllocStopAnswer struct {
	EvalID fleet.EvalID
	Index  fleet.Index
}

// AllocRestartRequest restarts tasks of an allocation: TaskName, or else all that have not ended. AllTasks restarts
// none if a task has ended.
type AllocRestartRequest struct {
	TaskName string
	AllTasks bool
}

// AllocSignalRequest sends a signal ("": SIGKILL) to a task of an allocation, or to all for "".
type AllocSignalRequest struct{ Task, Signal string }

// HeldAlloc is an allocation that somebody on site keeps stopped.
type HeldAlloc struct {
	ID           fleet.AllocID
	Name         string
	Namespace    string
	JobID        fleet.JobID
	JobVersion   uint64
	TaskGroup    string
	NodeID       fleet.NodeID
	NodeName     string
	Site         string
	ClientStatus string
	Held         fleet.Hold
}
