package fleet

// States of a prefetch.
const (
	PrefetchPending  = "pending"  // its node has not begun
	PrefetchFetching = "fetching" // its node fetches
	PrefetchDone     = "done"     // its node has everything
	PrefetchFailed   = "failed"   // a content could not be fetched; its node tries again
)

// Prefetch asks a node to fetch the artifacts and images of a version of a job before an allocation needs them, and
// to keep them. A node has at most one for each job.
type Prefetch struct {
	ID               PrefetchID
	Namespace        string
	JobID            JobID
	JobVersion       uint64
	NodeID           NodeID
	State            string
	StateDescription string `json:",omitempty"`
	Ending           bool   `json:",omitempty"` // its node must let the contents go
	// JobHash is the hash of the version's specification.
	JobHash string
	// RequestIndex is the index of the last request for it, or of its end. Reports of the node name it.
	RequestIndex Index
	CreateIndex  Index
	CreateTime   int64 // of the newest request, UnixNano
	ModifyIndex  Index
	ModifyTime   int64
}

// PrefetchIDOf returns the id of the prefetch of a job on a node.
func PrefetchIDOf(namespace string, job JobID, node NodeID) PrefetchID {
	return PrefetchID(DeriveUUID("prefetch", namespace, string(job), string(node)))
}

// PrefetchReport is the report of an edge about a prefetch. Transition.Message has the reason.
type PrefetchReport struct {
	ID PrefetchID
	// RequestIndex is the RequestIndex of the request that the report is about.
	RequestIndex Index
	State        string // PrefetchFetching, PrefetchDone or PrefetchFailed; "": the edge has let the contents go
}
