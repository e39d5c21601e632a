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

// Progress is the progress of a deployment, by group and site.
type Progress struct {
	Deployment *fleet.Deployment
	Groups     map[string]map[string]SiteProgress // by group, then site
	// Windows counts the allocations that wait for update windows, by group; nil: none can.
	Windows map[string]WindowProgress `json:",omitempty"`
	// Outlook is how it ends if no further allocation becomes healthy; nil: it has ended, or is paused.
	Outlook *fleet.DeploymentOutlook `json:",omitempty"`
	// Failed are its newest failed or unhealthy allocations. There is a limit on their number.
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

// Plus returns the sum of the counts of s and o.
func (s SiteProgress) Plus(o SiteProgress) SiteProgress {
	return SiteProgress{
		Healthy: s.Healthy + o.Healthy, Running: s.Running + o.Running, Deferred: s.Deferred + o.Deferred,
		Failed: s.Failed + o.Failed, Waiting: s.Waiting + o.Waiting, Shut: s.Shut + o.Shut,
	}
}

// Total returns the sum of a group's counts over all sites.
func (p Progress) Total(group string) SiteProgress {
	var sum SiteProgress
	for _, n := range p.Groups[group] {
		sum = sum.Plus(n)
	}
	return sum
}

// WindowProgress counts the allocations of a group that wait for update windows.
type WindowProgress struct {
	Deferred int        // allocations whose node's windows are closed
	Opens    *time.Time `json:",omitempty"` // when the first of them opens; nil: none does again
}

// DeploymentDetail is a deployment with the counts of its allocations that wait for update windows, by group.
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
