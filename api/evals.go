package api

import (
	"time"

	"skerry/fleet"
)

// EvalDetail is an evaluation with the ones that are linked to it: that led to it, follow from it, or wait for it.
type EvalDetail struct {
	*fleet.Evaluation
	RelatedEvals []EvalStub
}

// EvalStub is an evaluation in a list of related ones.
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
