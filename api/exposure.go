package api

import (
	"time"

	"skerry/fleet"
)

// NodeExposure lists what an edge knew: allocations that were placed there, and variables that they may read. It has no
// values. Allocations that the state has collected are not in it.
type NodeExposure struct {
	NodeID      fleet.NodeID
	Name        string
	Since       *time.Time `json:",omitempty"` // when the edge was revoked or lost; nil: it is connected
	Variables   []ExposedVariable
	Allocations []ExposedAlloc
	// SiteCodes are the valid codes whose hashes the edge may have. Tokens other than management ones do not see them.
	SiteCodes []fleet.SiteCode `json:",omitempty"`
}

// ExposedVariable is a variable that an edge may have. Changed says that its value was changed after Since, so that the
// edge does not know the present one.
type ExposedVariable struct {
	Namespace   string
	Path        string
	ModifyIndex fleet.Index // of the present version
	ModifyTime  time.Time
	Changed     bool
	Allocations []fleet.AllocID // that may read it
}

// ExposedAlloc is an allocation that was placed on an edge.
type ExposedAlloc struct {
	ID           fleet.AllocID
	Namespace    string
	JobID        fleet.JobID
	TaskGroup    string
	ClientStatus string
}
