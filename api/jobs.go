package api

import (
	"encoding/json"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// DispatchAnswer answers a dispatch. If the idempotency token was used before, it describes the job of that time,
// and has no evaluation.
type DispatchAnswer struct {
	DispatchedJobID fleet.JobID
	EvalID          fleet.EvalID
	EvalCreateIndex fleet.Index
	JobCreateIndex  fleet.Index
	Index           fleet.Index
}

// PlanAnswer answers a dry run, in Nomad's shape. Reasons, which explain the decisions, are an addition.
type PlanAnswer struct {
	JobModifyIndex fleet.Index
	CreatedEvals   []*fleet.Evaluation
	Diff           *diff.Job
	Annotations    PlanAnnotations
	FailedTGAllocs map[string]*fleet.AllocMetric
	Warnings       string
	// NextPeriodicLaunch is when the job would be launched next if it were registered now; zero: it is not periodic.
	NextPeriodicLaunch time.Time
	Reasons            []string `json:",omitempty"`
}

// PlanAnnotations counts what a dry run would change, by group.
type PlanAnnotations struct {
	DesiredTGUpdates map[string]fleet.DesiredUpdates
}

// JobRegisterRequest registers a job. Job is a fleet.Job as JSON.
type JobRegisterRequest struct {
	Job               json.RawMessage
	EnforceIndex      bool              `json:",omitempty"`
	JobModifyIndex    fleet.Index       `json:",omitempty"` // with EnforceIndex; 0: the job does not exist
	EvalPriority      int               `json:",omitempty"`
	Submission        *fleet.Submission `json:",omitempty"` // the job file
	PreserveCounts    bool              `json:",omitempty"`
	PreserveResources bool              `json:",omitempty"`
}

// EvalAnswer answers a change of a job. EvalID is "" if it needed no evaluation.
type EvalAnswer struct {
	EvalID          fleet.EvalID
	EvalCreateIndex fleet.Index
	JobModifyIndex  fleet.Index
	Warnings        string
	Index           fleet.Index
}

// JobStub is a job in a list.
type JobStub struct {
	ID                fleet.JobID
	ParentID          string
	Name              string
	Namespace         string
	Datacenters       []string
	NodePool          string
	Type              string
	Priority          int
	Periodic          bool
	ParameterizedJob  bool
	Stop              bool
	Status            string
	StatusDescription string
	JobSummary        *fleet.JobSummary
	CreateIndex       fleet.Index
	ModifyIndex       fleet.Index
	JobModifyIndex    fleet.Index
	SubmitTime        int64
	Meta              map[string]string `json:",omitempty"`
}

// JobStatusesRequest asks for the statuses of jobs; without Jobs, of all.
type JobStatusesRequest struct {
	Jobs []struct {
		ID        fleet.JobID
		Namespace string
	}
	IncludeChildren bool // as the parameter include_children
}

// JobStatus is a job with its allocations and newest deployment, as overview pages need it.
type JobStatus struct {
	ID               fleet.JobID
	ParentID         fleet.JobID
	Namespace        string
	Name             string
	Type             string
	NodePool         string
	Datacenters      []string
	Priority         int
	Version          uint64
	Stop             bool
	Status           string
	SubmitTime       int64
	CreateIndex      fleet.Index
	ModifyIndex      fleet.Index
	GroupCountSum    int
	ChildStatuses    []string // of a job that does not run itself
	Allocs           []JobStatusAlloc
	LatestDeployment *JobStatusDeployment
}

// JobStatusAlloc is one allocation in a JobStatus.
type JobStatusAlloc struct {
	ID               fleet.AllocID
	Group            string
	ClientStatus     string
	NodeID           fleet.NodeID
	DeploymentStatus *fleet.AllocDeployment
	JobVersion       uint64
	FollowupEvalID   fleet.EvalID
}

// JobStatusDeployment is the newest deployment in a JobStatus.
type JobStatusDeployment struct {
	ID                fleet.DeploymentID
	IsActive          bool
	JobVersion        uint64
	Status            string
	StatusDescription string
	AllAutoPromote    bool
	RequiresPromotion bool
}

// JobScaleRequest changes the count of a group (Target["Group"]). Without Count it only records Message, as an
// autoscaler does.
type JobScaleRequest struct {
	Count          *int64
	Target         map[string]string
	Message        string
	Error          bool
	Meta           map[string]any
	JobModifyIndex fleet.Index
}

// ScaleStatus has the counts and scaling events of a job's groups.
type ScaleStatus struct {
	JobID          fleet.JobID
	Namespace      string
	JobCreateIndex fleet.Index
	JobModifyIndex fleet.Index
	JobStopped     bool
	TaskGroups     map[string]GroupScale
}

// GroupScale has the wanted and actual counts of a group, and its newest scaling events, the last one first.
type GroupScale struct {
	Desired, Placed, Running, Healthy, Unhealthy int
	Events                                       []fleet.ScalingEvent
}

// SubmissionAnswer is the job file with which a version of a job was registered.
type SubmissionAnswer struct {
	fleet.Submission
	Namespace      string
	JobID          fleet.JobID
	Version        uint64
	JobModifyIndex fleet.Index
}

// JobRevertRequest reverts a job to the version with a number, or with a tag. With EnforcePriorVersion it is refused
// unless the job is at that version now.
type JobRevertRequest struct {
	JobID               fleet.JobID
	JobVersion          uint64
	TaggedVersion       string
	EnforcePriorVersion *uint64
}

// JobStableRequest sets whether a version of a job is stable: failed deployments revert to stable versions.
type JobStableRequest struct {
	JobID      fleet.JobID
	JobVersion uint64
	Stable     bool
}

// ScalingStub is a scaling policy in a list.
type ScalingStub struct {
	ID                       string
	Enabled                  bool
	Type                     string
	Target                   map[string]string
	CreateIndex, ModifyIndex fleet.Index
}

// ScalingPolicy is a scaling block of a job, with what it scales (Target). Its ID derives from the target and the
// type, so it stays the same over versions of the job.
type ScalingPolicy struct {
	ID                       string
	Enabled                  bool
	Type                     string
	Target                   map[string]string
	CreateIndex, ModifyIndex fleet.Index
	Namespace                string
	Min, Max                 *int
	Policy                   map[string]any
}

// Stub returns the policy as lists show it.
func (p *ScalingPolicy) Stub() ScalingStub {
	return ScalingStub{p.ID, p.Enabled, p.Type, p.Target, p.CreateIndex, p.ModifyIndex}
}

// JobDispatchRequest runs a parameterized job once.
type JobDispatchRequest struct {
	Payload          []byte
	Meta             map[string]string
	IdPrefixTemplate string
	Priority         int
}

// JobEvaluateRequest creates an evaluation for a job.
type JobEvaluateRequest struct {
	JobID       fleet.JobID
	EvalOptions EvalOptions
}

// EvalOptions say how a job is evaluated.
type EvalOptions struct {
	ForceReschedule bool // replace failed allocations now, whatever their delay and attempts
}

// JobTagRequest gives a version of a job a tag: the version with a number, or the latest.
type JobTagRequest struct {
	Version     uint64
	Latest      bool
	Description string
}

// JobPlanRequest asks what a registration would change. Job is a fleet.Job as JSON.
type JobPlanRequest struct {
	Job  json.RawMessage
	Diff bool
}

// JobVersionsAnswer has the kept versions of a job, the newest first, and their differences if the request asks for
// them.
type JobVersionsAnswer struct {
	Versions []*fleet.Job
	Diffs    []diff.Job `json:",omitempty"`
}
