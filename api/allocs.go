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
	AllocatedResources    any `json:",omitempty"` // as an allocation has them, where they are asked for
}

// HistoryAnswer is an allocation's timeline, both sides in one. Dropped counts
// what the hub let go at its bound, the least important first.
type HistoryAnswer struct {
	Alloc   AllocStub
	Entries []fleet.HistoryEntry
	Dropped uint64
}

// StreamFrame is a piece of a file in a framed stream.
type StreamFrame struct {
	Offset    int64  `json:",omitempty"`
	Data      []byte `json:",omitempty"`
	File      string `json:",omitempty"`
	FileEvent string `json:",omitempty"`
}

// AllocStopAnswer answers the stop of an allocation. Without EvalID it had ended, or was stopping.
type AllocStopAnswer struct {
	EvalID fleet.EvalID
	Index  fleet.Index
}

// AllocRestartRequest restarts the running tasks of an allocation, one task, or all tasks.
type AllocRestartRequest struct {
	TaskName string
	AllTasks bool
}

// AllocSignalRequest sends a signal to the tasks of an allocation, or to one.
type AllocSignalRequest struct{ Task, Signal string }
