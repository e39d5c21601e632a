package fleet

import "time"

// Evaluation statuses.
const (
	EvalBlocked  = "blocked"
	EvalPending  = "pending"
	EvalComplete = "complete"
	EvalFailed   = "failed"
	EvalCanceled = "canceled"
)

// What made an evaluation, as Nomad names it.
const (
	TriggerJobRegister       = "job-register"
	TriggerJobDeregister     = "job-deregister"
	TriggerNodeUpdate        = "node-update"
	TriggerNodeDrain         = "node-drain"
	TriggerAllocStop         = "alloc-stop"
	TriggerQueuedAllocs      = "queued-allocs"
	TriggerScheduled         = "scheduled"
	TriggerPeriodicJob       = "periodic-job"
	TriggerFailedFollowUp    = "failed-follow-up"
	TriggerMaxPlanAttempts   = "max-plan-attempts"
	TriggerRetryFailedAlloc  = "alloc-failure"
	TriggerAllocReschedule   = "alloc-reschedule"
	TriggerDisconnectTimeout = "max-disconnect-timeout"
	TriggerReconnect         = "reconnect"
	TriggerPreemption        = "preemption"
	TriggerDeploymentWatcher = "deployment-watcher"
	TriggerScaling           = "job-scaling"
	TriggerUpdateWindow      = "update-window"
)

// Evaluation asks the scheduler to look at one job.
type Evaluation struct {
	ID                EvalID
	Namespace         string
	Priority          int
	Type              string // the job's
	TriggeredBy       string
	JobID             JobID
	JobModifyIndex    Index
	NodeID            NodeID
	NodeModifyIndex   Index
	DeploymentID      DeploymentID
	Status            string
	StatusDescription string
	WaitUntil         time.Time // not before; zero: at once
	NextEval          EvalID
	PreviousEval      EvalID
	BlockedEval       EvalID
	FailedTGAllocs    map[string]*AllocMetric
	PlanAnnotations   *PlanAnnotations // what its plan was to change; nil: none was made
	ClassEligibility  map[string]bool
	EscapedClass      bool `json:"EscapedComputedClass"` // a constraint looks at what differs within a class
	QueuedAllocations map[string]int
	AwaitedNodes      []NodeID `json:",omitempty"` // where room is being made for it; sorted
	// AwaitsRoom counts, by group, the queued allocations that are placed as soon as those that
	// make room for them have stopped. FailedTGAllocs says nothing of these.
	AwaitsRoom    map[string]int `json:",omitempty"`
	SnapshotIndex Index          // of the state the scheduler looked at
	CreateIndex   Index
	ModifyIndex   Index
	CreateTime    int64 // UnixNano
	ModifyTime    int64
}

// PlanAnnotations counts what a plan changes, by group, in Nomad's shape.
type PlanAnnotations struct {
	DesiredTGUpdates map[string]DesiredUpdates
}

// DesiredUpdates counts what happens to one group's allocations. NoNode and AwaitsRoom are
// Skerry's own: of those to place and to replace, how many find no node, and how many wait
// until the room that is made for them is free.
type DesiredUpdates struct {
	Ignore, Place, Stop, InPlaceUpdate, DestructiveUpdate, Canary, Disconnect, Reconnect uint64
	NoNode, AwaitsRoom                                                                   uint64
}

// Terminal reports whether nothing more will happen to it.
func (e *Evaluation) Terminal() bool {
	switch e.Status {
	case EvalComplete, EvalFailed, EvalCanceled:
		return true
	}
	return false
}
