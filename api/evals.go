package api

import (
	"time"

	"skerry/fleet"
)

// EvalDetail is an evaluation with those that led to it, and those that it led to.
type EvalDetail struct {
	*fleet.Evaluation
	RelatedEvals []EvalStub
}

// EvalStub is an evaluation that is related to another one.
type EvalStub struct {
	ID                fleet.EvalID
	Namespace         string
	Priority          int
	Type              string
	TriggeredBy       string
	JobID             fleet.JobID
	NodeID            fleet.NodeID
	DeploymentID      fleet.DeploymentID
	Status            string
	StatusDescription string
	WaitUntil         time.Time
	NextEval          fleet.EvalID
	PreviousEval      fleet.EvalID
	BlockedEval       fleet.EvalID
	CreateIndex       fleet.Index
	ModifyIndex       fleet.Index
	CreateTime        int64
	ModifyTime        int64
}
