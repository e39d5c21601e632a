package fleet

// Delivery is an evaluation that the broker gave to a scheduler's worker, with the
// status that the state has: one that waited for capacity is still blocked, and the
// worker stores it again where there still is none.
type Delivery struct {
	Eval *Evaluation
	// Token proves the delivery: every later call about it carries the token, and a
	// token of an older delivery is refused.
	Token string
	// WaitIndex is the entry that the worker's state must have applied first: it has
	// what earlier evaluations of the same job did.
	WaitIndex Index
}

// Plan is what a scheduler wants to change, on the picture it had. The planner
// commits what still fits the newest state.
type Plan struct {
	EvalID        EvalID
	EvalToken     string // of the broker's delivery: a plan of a lost delivery is refused
	Priority      int
	AllAtOnce     bool
	Job           *Job
	SnapshotIndex Index

	// NodeAllocation are new allocations and in-place updates, by node;
	// NodeUpdate are stops, losses, disconnects and reconnects. Each is the whole
	// allocation as it shall be; only what the hub decides on is taken from it.
	NodeAllocation map[NodeID][]Alloc
	NodeUpdate     map[NodeID][]Alloc
	// Evals are made in the same entry: follow-ups, and the evaluation's own end.
	Evals []Evaluation
	// Deployment is one that the plan begins; DeploymentUpdates change the status of
	// others.
	Deployment        *Deployment
	DeploymentUpdates []DeploymentUpdate
}

// PlanResult is what was committed.
type PlanResult struct {
	NodeAllocation map[NodeID][]Alloc
	NodeUpdate     map[NodeID][]Alloc
	Rejected       map[NodeID]string // nodes left out, and why
	RefreshIndex   Index             // where not all was committed: look again at least here
	// Refused is why a plan was not committed, or not to its end: it was made on a picture
	// that is too old.
	Refused    string `json:",omitempty"`
	AllocIndex Index  // the entry that committed it
}

// Full reports whether all of the plan was committed.
func (r *PlanResult) Full() bool { return len(r.Rejected) == 0 && r.Refused == "" }

// Empty reports whether the plan changes nothing.
func (p *Plan) Empty() bool {
	return len(p.NodeAllocation) == 0 && len(p.NodeUpdate) == 0 && len(p.Evals) == 0 &&
		p.Deployment == nil && len(p.DeploymentUpdates) == 0
}
