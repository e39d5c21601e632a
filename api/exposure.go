package api

import (
	"time"

	"skerry/fleet"
)

// NodeExposure lists what an edge knew: allocations that were placed there, the variables that they may read, and the
// identities of their tasks. It has no values. The lists of a revoked node stay as they were when it was revoked; those of
// another node lack allocations that the state has collected.
type NodeExposure struct {
	NodeID      fleet.NodeID
	Name        string
	Since       *time.Time `json:",omitempty"` // when the edge was revoked or lost; nil: it is connected
	Variables   []ExposedVariable
	Allocations []ExposedAlloc
	// Identities are those of tasks of allocations that the edge had not reported as ended.
	Identities []ExposedIdentity
	// IdentityKey is the id of the edge's own key for offline identities, as it was told last; "": it has none. Published says
	// that the hubs still publish it.
	IdentityKey string `json:",omitempty"`
	Published   bool   `json:",omitempty"`
	// SiteCodes are the valid codes whose hashes the edge may have. Tokens other than management ones do not see them.
	SiteCodes []fleet.SiteCode `json:",omitempty"`
}

// ExposedVariable is a variable that an edge may have. Changed says that its value was changed after Since, so that the
// edge does not know the present one. Deleted says that there is none of the path any more; the edge may know its last value.
type ExposedVariable struct {
	Namespace   string
	Path        string
	ModifyIndex fleet.Index // of the present version
	ModifyTime  time.Time   `json:",omitzero"`
	Changed     bool
	Deleted     bool            `json:",omitempty"`
	Allocations []fleet.AllocID // that may read it
}

// ExposedIdentity is an identity of a task of which an edge may have a token. Offline says that the edge may sign one itself.
type ExposedIdentity struct {
	Namespace string
	JobID     fleet.JobID
	AllocID   fleet.AllocID
	Task      string
	Name      string
	Audience  []string
	TTL       time.Duration `json:",omitempty"` // 0: its tokens last as long as their allocation
	Offline   bool          `json:",omitempty"`
}

// ExposedAlloc is an allocation that was placed on an edge.
type ExposedAlloc struct {
	ID           fleet.AllocID
	Namespace    string
	JobID        fleet.JobID
	TaskGroup    string
	ClientStatus string // of a revoked node: when it was revoked
}
