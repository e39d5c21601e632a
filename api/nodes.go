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

// DrainRequest starts or cancels the drain of a node, in Nomad's shape.
type DrainRequest struct {
	NodeID    fleet.NodeID
	DrainSpec *DrainSpec // nil: cancel
	// MarkEligible makes the node eligible when the request cancels its drain. Nomad's CLI also sends it with a
	// drain that it starts, where it has no effect.
	MarkEligible bool
	Meta         map[string]string
}

// DrainSpec says how a node is drained: see fleet.DrainStrategy.
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
	// NodeResources and ReservedResources have the shape that they have in a node. They are nil unless the request
	// asks for them.
	NodeResources, ReservedResources any `json:",omitempty"`
}

// RevokeRequest revokes a node. A request without a body gives no reason.
type RevokeRequest struct{ Reason string }

// NodeEligibilityRequest says whether new allocations may be placed on a node.
type NodeEligibilityRequest struct{ Eligibility string }
