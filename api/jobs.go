package api

import (
	"encoding/json"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// DispatchAnswer answers a dispatch. Where its idempotency token was used before, it
// is about the job that there is, and no evaluation was made.
type DispatchAnswer struct {
	DispatchedJobID fleet.JobID
	EvalID          fleet.EvalID
	EvalCreateIndex fleet.Index
	JobCreateIndex  fleet.Index
	Index           fleet.Index
}

// PlanAnswer answers a dry run, in Nomad's shape; Reasons are ours.
type PlanAnswer struct {
	JobModifyIndex fleet.Index
	CreatedEvals   []*fleet.Evaluation
	Diff           *diff.Job
	Annotations    PlanAnnotations
	FailedTGAllocs map[string]*fleet.AllocMetric
	Warnings       string
	// NextPeriodicLaunch is when the job is launched next if it is registered now; zero
	// where it is not periodic.
	NextPeriodicLaunch time.Time
	Reasons            []string `json:",omitempty"`
}

// PlanAnnotations counts what would happen, by group.
type PlanAnnotations struct {
	DesiredTGUpdates map[string]fleet.DesiredUpdates
}

// JobRegisterRequest registers a job. Job is a fleet.Job.
type JobRegisterRequest struct {
	Job               json.RawMessage
	EnforceIndex      bool              `json:",omitempty"`
	JobModifyIndex    fleet.Index       `json:",omitempty"` // with EnforceIndex; 0: the job does not exist
	EvalPriority      int               `json:",omitempty"`
	Submission        *fleet.Submission `json:",omitempty"` // the job file
	PreserveCounts    bool              `json:",omitempty"`
	PreserveResources bool              `json:",omitempty"`
}

// EvalAnswer answers a change that made an evaluation.
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

// JobStatusesRequest is the body of a request for jobs' statuses.
type JobStatusesRequest struct {
	Jobs []struct {
		ID        fleet.JobID
		Namespace string
	}
	IncludeChildren bool // as the parameter include_children
}

// JobStatus is a job with what a page about it shows.
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

// JobStatusAlloc is one allocation of a job.
type JobStatusAlloc struct {
	ID               fleet.AllocID
	Group            string
	ClientStatus     string
	NodeID           fleet.NodeID
	DeploymentStatus *fleet.AllocDeployment
	JobVersion       uint64
	FollowupEvalID   fleet.EvalID
}

// JobStatusDeployment is a job's newest deployment.
type JobStatusDeployment struct {
	ID                fleet.DeploymentID
	IsActive          bool
	JobVersion        uint64
	Status            string
	StatusDescription string
	AllAutoPromote    bool
	RequiresPromotion bool
}

// JobScaleRequest is the body of a scaling: a count, or what a scaler has to say.
type JobScaleRequest struct {
	Count          *int64
	Target         map[string]string
	Message        string
	Error          bool
	Meta           map[string]any
	JobModifyIndex fleet.Index
}

// ScaleStatus is how a job's groups are scaled.
type ScaleStatus struct {
	JobID          fleet.JobID
	Namespace      string
	JobCreateIndex fleet.Index
	JobModifyIndex fleet.Index
	JobStopped     bool
	TaskGroups     map[string]GroupScale
}

// GroupScale is how one group is scaled: what is wanted, what is there, and the newest
// steps, the last first.
type GroupScale struct {
	Desired, Placed, Running, Healthy, Unhealthy int
	Events                                       []fleet.ScalingEvent
}

// SubmissionAnswer is the file that a version of a job was made of.
type SubmissionAnswer struct {
	fleet.Submission
	Namespace      string
	JobID          fleet.JobID
	Version        uint64
	JobModifyIndex fleet.Index
}

// JobRevertRequest names the version that a job goes back to, by its number or by its
// tag. With EnforcePriorVersion the job has to be at that version now.
type JobRevertRequest struct {
	JobID               fleet.JobID
	JobVersion          uint64
	TaggedVersion       string
	EnforcePriorVersion *uint64
}

// JobStableRequest says whether a version of a job is one to go back to.
type JobStableRequest struct {
	JobID      fleet.JobID
	JobVersion uint64
	Stable     bool
}

// ScalingStub is a scaling policy as lists show it.
type ScalingStub struct {
	ID                       string
	Enabled                  bool
	Type                     string
	Target                   map[string]string
	CreateIndex, ModifyIndex fleet.Index
}

// ScalingPolicy is what a job's scaling block says, and of what. Its id is made of
// that: it stays the same for as long as the job has such a block.
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

// Stub is the policy as lists show it.
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

// JobPlanRequest asks what a registration would change. Job is a fleet.Job.
type JobPlanRequest struct {
	Job  json.RawMessage
	Diff bool
}

// JobVersionsAnswer has the versions of a job that are kept, the newest first, and what each changed.
type JobVersionsAnswer struct {
	Versions []*fleet.Job
	Diffs    []diff.Job `json:",omitempty"`
}
