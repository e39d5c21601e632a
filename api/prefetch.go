package api

import "skerry/fleet"

// PrefetchRequest has nodes fetch the artifacts and images of a version of a job before allocations need them.
type PrefetchRequest struct {
	JobVersion *uint64        `json:",omitempty"` // nil: the newest
	NodeIDs    []fleet.NodeID `json:",omitempty"`
	NodePool   string         `json:",omitempty"` // all nodes of this pool
}

// PrefetchAnswer answers a PrefetchRequest.
type PrefetchAnswer struct {
	JobVersion uint64
	NodeIDs    []fleet.NodeID // the nodes that fetch
	Warnings   string
	Index      fleet.Index
}

// PrefetchStub is a prefetch in a list.
type PrefetchStub struct {
	fleet.Prefetch
	NodeName   string
	NodeStatus fleet.NodeStatus
}
