package fleet

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Deployment statuses.
const (
	DeploymentInitializing = "initializing"
	DeploymentPending      = "pending"
	DeploymentRunning      = "running"
	DeploymentPaused       = "paused"
	DeploymentBlocked      = "blocked"
	DeploymentUnblocking   = "unblocking"
	DeploymentFailed       = "failed"
	DeploymentSuccessful   = "successful"
	DeploymentCancelled    = "cancelled"
)

// Descriptions of a deployment's status, as Nomad's users and their scripts know
// them.
const (
	DescRunning           = "Deployment is running"
	DescNeedsPromotion    = "Deployment is running but requires manual promotion"
	DescAutoPromotion     = "Deployment is running pending automatic promotion"
	DescFailedCanaries    = "Deployment is running, and a canary has failed" // Nomad has no such one
	DescPaused            = "Deployment is paused"
	DescSuccessful        = "Deployment completed successfully"
	DescStoppedJob        = "Cancelled because job is stopped"
	DescNewerJob          = "Cancelled due to newer version of job"
	DescFailedAllocations = "Failed due to unhealthy allocations"
	DescProgressDeadline  = "Failed due to progress deadline"
	DescFailedByUser      = "Deployment marked as failed"
)

// DescRollback is the description of a deployment that failed and whose job goes
// back to an older version.
func DescRollback(why string, version uint64) string {
	return fmt.Sprintf("%s - rolling back to job version %d", why, version)
}

// DescRollbackNoop is the description where going back would change nothing.
func DescRollbackNoop(why string, version uint64) string {
	return fmt.Sprintf("%s - not rolling back to stable job version %d as current job has same specification", why, version)
}

// DescNoRollback is the description where there is nothing to go back to.
func DescNoRollback(why string) string {
	return why + " - no stable job version to auto revert to"
}

// Deployment is the rollout of one version of a job, from the plan that begins it until it
// succeeds, fails or is cancelled by a newer version. Health counts once the edges' journals
// report it.
type Deployment struct {
	ID                 DeploymentID
	Namespace          string
	JobID              JobID
	JobVersion         uint64
	JobModifyIndex     Index
	JobSpecModifyIndex Index
	JobCreateIndex     Index
	IsMultiregion      bool
	TaskGroups         map[string]DeploymentState
	Status             string
	StatusDescription  string
	EvalPriority       int
	CreateIndex        Index
	ModifyIndex        Index
	CreateTime         int64 // UnixNano, hub's clock
	ModifyTime         int64
}

// DeploymentState is the progress of one group. Allocations count once they are placed; those on
// disconnected edges are neither healthy nor unhealthy until their edges report.
type DeploymentState struct {
	AutoRevert        bool
	AutoPromote       bool
	ProgressDeadline  time.Duration // 0: a single unhealthy allocation fails the deployment
	RequireProgressBy time.Time     // by the hub's clock; zero: nothing is placed yet
	Promoted          bool
	PlacedCanaries    []AllocID
	DesiredCanaries   int
	DesiredTotal      int
	PlacedAllocs      int
	HealthyAllocs     int
	UnhealthyAllocs   int
	// WaitFor is the update block's wait_for: what has to be healthy for the group
	// to be done while edges are away.
	WaitFor string `json:",omitempty"`
}

// DeploymentUpdate changes the status of a deployment.
type DeploymentUpdate struct {
	DeploymentID      DeploymentID
	Status            string
	StatusDescription string
}

// AllocDeployment is an allocation's state in its deployment: the DeploymentStatus of Nomad's API.
type AllocDeployment struct {
	Healthy     *bool // nil: not known yet
	Timestamp   time.Time
	Canary      bool // placed as one, and not promoted yet
	ModifyIndex Index
}

// Active reports whether the deployment has not ended.
func (d *Deployment) Active() bool {
	if d == nil {
		return false
	}
	switch d.Status {
	case DeploymentRunning, DeploymentPaused, DeploymentBlocked, DeploymentUnblocking,
		DeploymentInitializing, DeploymentPending:
		return true
	}
	return false
}

// Of reports whether the deployment rolls out this version of a job, and not of an earlier job of
// that name.
func (d *Deployment) Of(j *Job) bool {
	return d != nil && j != nil && d.JobID == j.ID && d.Namespace == j.Namespace &&
		d.JobVersion == j.Version && d.JobCreateIndex == j.CreateIndex
}

// StoppedForUpdate reports whether the deployment may have stopped an allocation of an older
// version that is not replaced yet.
func (d *Deployment) StoppedForUpdate(a *Alloc) bool {
	return d != nil && a.Vacated() && a.AllocModifyIndex >= d.CreateIndex
}

// RequiresPromotion reports whether a group's canaries wait to be promoted.
func (d *Deployment) RequiresPromotion() bool {
	if d == nil || d.Status != DeploymentRunning {
		return false
	}
	for _, s := range d.TaskGroups {
		if s.DesiredCanaries > 0 && !s.Promoted {
			return true
		}
	}
	return false
}

// AutoPromotes reports whether all groups with canaries are promoted automatically.
func (d *Deployment) AutoPromotes() bool {
	any := false
	for _, s := range d.TaskGroups {
		if s.DesiredCanaries == 0 {
			continue
		}
		if !s.AutoPromote {
			return false
		}
		any = true
	}
	return any
}

// RunningDescription is the description of the deployment while it runs. canaryFailed says that a canary
// failed, and that its group has too few healthy ones. TaskGroups do not tell: as in Nomad, HealthyAllocs
// goes on to count an allocation that was healthy and has failed.
func (d *Deployment) RunningDescription(canaryFailed bool) string {
	waits := false
	for _, s := range d.TaskGroups {
		waits = waits || s.DesiredCanaries > 0 && !s.Promoted
	}
	switch {
	case !waits:
		return DescRunning
	case canaryFailed:
		return DescFailedCanaries
	case d.AutoPromotes():
		return DescAutoPromotion
	}
	return DescNeedsPromotion
}

// Groups lists the deployment's groups, sorted.
func (d *Deployment) Groups() []string {
	return slices.Sorted(maps.Keys(d.TaskGroups))
}

// Copy returns a deployment whose groups may be changed.
func (d *Deployment) Copy() *Deployment {
	c := *d
	c.TaskGroups = maps.Clone(d.TaskGroups)
	return &c
}

// IsHealthy reports whether the allocation is known to be healthy.
func (s *AllocDeployment) IsHealthy() bool { return s != nil && s.Healthy != nil && *s.Healthy }

// IsUnhealthy reports whether the allocation is known not to be healthy.
func (s *AllocDeployment) IsUnhealthy() bool { return s != nil && s.Healthy != nil && !*s.Healthy }

// IsCanary reports whether the allocation is a canary that is not promoted.
func (s *AllocDeployment) IsCanary() bool { return s != nil && s.Canary }

// Fail returns the status of a deployment that fails for a reason, and the version that its job
// reverts to: the newest stable one of the kept versions (newest first), if a group has
// auto_revert and the two differ. nil: none.
func (d *Deployment) Fail(versions []*Job, why string) (DeploymentUpdate, *Job) {
	u := DeploymentUpdate{DeploymentID: d.ID, Status: DeploymentFailed, StatusDescription: why}
	reverts := false
	for _, s := range d.TaskGroups {
		reverts = reverts || s.AutoRevert
	}
	if !reverts {
		return u, nil
	}
	var current, stable *Job
	for _, v := range versions {
		if v.Version == d.JobVersion {
			current = v
		}
		if v.Stable && v.Version <= d.JobVersion && stable == nil {
			stable = v
		}
	}
	switch {
	case stable == nil:
		u.StatusDescription = DescNoRollback(why)
	case current != nil && current.SpecHash == stable.SpecHash:
		u.StatusDescription = DescRollbackNoop(why, stable.Version)
	default:
		u.StatusDescription = DescRollback(why, stable.Version)
		back := *stable
		back.SubmitTime = 0
		return u, &back
	}
	return u, nil
}
