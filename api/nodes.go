package api

import (
	"time"

	"skerry/fleet"
)

// NodeAnswer answers a change of a node.
type NodeAnswer struct {
	EvalID          fleet.EvalID `json:",omitempty"` // the first of EvalIDs
	EvalIDs         []fleet.EvalID
	EvalCreateIndex fleet.Index
	NodeModifyIndex fleet.Index
	Index           fleet.Index
}

// DrainRequest is the body of a change of a node's drain, in Nomad's shape.
type DrainRequest struct {
	NodeID    fleet.NodeID
	DrainSpec *DrainSpec // nil: cancel
	// MarkEligible makes the node eligible when the request ends its drain. Nomad's CLI sends
	// it with every drain that it begins, too, where it does nothing.
	MarkEligible bool
	Meta         map[string]string
}

// DrainSpec says how a node is to be emptied: see fleet.DrainStrategy.
type DrainSpec struct {
	Deadline         time.Duration
	IgnoreSystemJobs bool
}

// NodeStub is a node in a list.
type NodeStub struct {
	Address               string
	ID                    fleet.NodeID
	Attributes            map[string]string `json:",omitempty"`
	Datacenter            string
	Site                  string // where it stands: its datacenter, where it names none
	Name                  string
	NodeClass             string
	NodePool              string
	Version               string
	Drain                 bool
	SchedulingEligibility string
	Status                fleet.NodeStatus
	StatusDescription     string
	LastDrain             *fleet.DrainMetadata
	Drivers               map[string]fleet.DriverInfo
	CreateIndex           fleet.Index
	ModifyIndex           fleet.Index
	// As a node has them, where they are asked for.
	NodeResources, ReservedResources any `json:",omitempty"`
}

// RevokeRequest is the body of a revocation; there need be none.
type RevokeRequest struct{ Reason string }

// NodeEligibilityRequest says whether new allocations may be placed on a node.
type NodeEligibilityRequest struct{ Eligibility string }
