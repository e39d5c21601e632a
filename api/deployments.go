package api

import (
	"time"

	"skerry/fleet"
)

// DeploymentAnswer answers a change of a deployment.
type DeploymentAnswer struct {
	EvalID                fleet.EvalID
	EvalCreateIndex       fleet.Index
	DeploymentModifyIndex fleet.Index
	RevertedJobVersion    *uint64 // the version that the job went back to
	Index                 fleet.Index
}

// Progress is how far a deployment is, by group and site.
type Progress struct {
	Deployment *fleet.Deployment
	Groups     map[string]map[string]SiteProgress // by group, then site
	// Windows is what waits for windows of updates, by group; nil: nothing can.
	Windows map[string]WindowProgress `json:",omitempty"`
	// Outlook is what becomes of it if nothing more becomes healthy; nil: it is over, or paused.
	Outlook *fleet.DeploymentOutlook `json:",omitempty"`
	// Failed are its allocations that failed or are unhealthy, the newest first, failedShown at most.
	Failed []AllocStub `json:",omitempty"`
}

// SiteProgress counts a group's allocations at one site.
type SiteProgress struct {
	Healthy, Running int // of the newest version
	Deferred         int // on disconnected nodes
	Failed           int // of the newest version
	Waiting          int // of older versions, on connected nodes

	Shut int `json:",omitempty"` // the part of Waiting whose update windows are closed
}

// Plus adds what is at another site.
func (s SiteProgress) Plus(o SiteProgress) SiteProgress {
	return SiteProgress{
		Healthy: s.Healthy + o.Healthy, Running: s.Running + o.Running, Deferred: s.Deferred + o.Deferred,
		Failed: s.Failed + o.Failed, Waiting: s.Waiting + o.Waiting, Shut: s.Shut + o.Shut,
	}
}

// Total adds up a group's sites.
func (p Progress) Total(group string) SiteProgress {
	var sum SiteProgress
	for _, n := range p.Groups[group] {
		sum = sum.Plus(n)
	}
	return sum
}

// WindowProgress is what of a group's rollout waits for windows of updates.
type WindowProgress struct {
	Deferred int        // allocations whose node's windows are closed
	Opens    *time.Time `json:",omitempty"` // when the first of them opens; nil: none does again
}

// DeploymentDetail is a deployment with what of it waits for windows, by group.
type DeploymentDetail struct {
	*fleet.Deployment
	Windows map[string]WindowProgress `json:",omitempty"`
}

// DeploymentPromoteRequest names the task groups whose canaries are promoted: all, or some.
type DeploymentPromoteRequest struct {
	DeploymentID fleet.DeploymentID
	All          bool
	Groups       []string `json:",omitempty"`
}

// DeploymentPauseRequest pauses a deployment, or resumes it.
type DeploymentPauseRequest struct {
	DeploymentID fleet.DeploymentID
	Pause        bool
}

// DeploymentHealthRequest sets the health of allocations of a deployment.
type DeploymentHealthRequest struct {
	DeploymentID           fleet.DeploymentID
	HealthyAllocationIDs   []fleet.AllocID
	UnhealthyAllocationIDs []fleet.AllocID
}
