package reconcile

import (
	"time"

	"skerry/fleet"
)

// Input is the picture that a decision is made on: one job and all that the
// cluster knows of it.
type Input struct {
	Job       *fleet.Job // nil: purged
	Namespace string
	JobID     fleet.JobID
	EvalID    fleet.EvalID
	Priority  int
	// Allocs are all of the job's, also terminal ones, in any order. Alloc.Job is
	// the version that it runs; where it is nil its tasks count as changed.
	Allocs []*fleet.Alloc
	Nodes  map[fleet.NodeID]*fleet.Node // of Allocs; what is missing was removed
	// Targets are the nodes that may take new work of a system or sysbatch job: those
	// of its pool and datacenters that are ready and eligible.
	Targets []*fleet.Node
	// Deployment is the job's newest one, nil for none.
	Deployment *fleet.Deployment
	// DefaultDisconnect is what absence of a disconnect block means, by node pool
	// (fleet.DisconnectKeep where a pool is not in it).
	DefaultDisconnect map[string]string
	// Waiting are the job's pending evaluations that a Decide asked for
	// (Output.FollowUps) and whose time is yet to come.
	Waiting map[fleet.EvalID]time.Time
	// Suits says why a node does not suit the newest version of a group, "" where
	// it does; resources are not looked at. nil: every node suits.
	Suits func(n *fleet.Node, group string) string
	// Room reports whether the newest version has room on the node of one of a system job's
	// allocations, in its stead. nil: there is room everywhere.
	Room func(prev *fleet.Alloc) bool
	// Window says how the windows of the newest version of a group stand on a node now.
	// nil: they are always open.
	Window func(n *fleet.Node, group string) Window
	Now    time.Time // leader's clock
	NewID  func() string
}

// Output is what is to be done. Every allocation of the input is in exactly one
// of Stops, Retired, Lost, Unknown, Reconnects, InPlace and Kept. Each list is ordered
// by group and name; new names come last in their group.
type Output struct {
	Place      []Placement
	Stops      []Change // desired status stop
	Retired    []Change // ended by themselves, and wanted no more: the desired status stays
	Unknown    []Change // out of sight: becomes unknown
	Lost       []Change // given up: client status lost, desired stop
	Reconnects []Change // settled: kept after an absence
	InPlace    []Change // takes the newest version of the job, same tasks
	Kept       []Change // left alone; written only where Waits
	// FollowUps are evaluations for later (WaitUntil set). Change.FollowUp says
	// which allocation waits for which.
	FollowUps []fleet.Evaluation
	// Cancel lists evaluations of Input.Waiting that nobody waits for any more.
	Cancel []fleet.EvalID
	// Deployment is one that begins now; DeploymentUpdates end others.
	Deployment        *fleet.Deployment
	DeploymentUpdates []fleet.DeploymentUpdate
	// Groups sums up, for people and for checkers.
	Groups map[string]GroupSummary
}

// Placement asks for a new allocation.
type Placement struct {
	Name     string
	Group    string
	Previous *fleet.Alloc // replaced by it, nil for a new one
	// Tracker is the new allocation's; nil where nothing failed before it.
	Tracker *fleet.RescheduleTracker
	Node    fleet.NodeID // the only one that will do; "": any
	Job     *fleet.Job   // the version to place; nil: the newest
	Canary  bool
	// Deployment is the one that it belongs to, "" for none.
	Deployment fleet.DeploymentID
	AvoidNode  fleet.NodeID // the node that Previous failed on, or that went away; "" for none
	Reason     string
}

// Change says what becomes of one allocation. Fields at their zero value leave
// the allocation as it is.
type Change struct {
	Alloc         *fleet.Alloc
	DesiredStatus string
	ClientStatus  string
	Record        []fleet.AllocState // to be appended to its AllocStates
	// FollowUp is the evaluation that it waits for from now on; "" for none.
	FollowUp fleet.EvalID
	// Update: it takes the job's newest version.
	Update bool
	// Deployment is the one that it belongs to from now on; "": as before.
	Deployment fleet.DeploymentID
	// Retires: it ended by itself, and the hub wants nothing of it any more.
	Retires bool
	// Anew: it is stopped so that the job's newest version can be started.
	Anew bool
	// WithPlacement: only together with the placement that has it for Previous.
	// Where nothing can be placed, it is left alone.
	WithPlacement bool
	// Reschedules: it failed and is replaced by its reschedule policy. Where nothing can be
	// placed, it is stopped all the same, as Unplaced says.
	Reschedules bool
	// Windows are those in which its edge may begin a stop; none: at once.
	Windows []fleet.UpdateWindow
	Reason  string
}

// Waits reports whether the allocation begins to wait for another evaluation, so
// that it has to be written even where nothing else of it changes.
func (c Change) Waits() bool { return c.FollowUp != "" && c.FollowUp != c.Alloc.FollowupEvalID }

// Apply returns the allocation as the change makes it; job is the newest version.
func (c Change) Apply(job *fleet.Job) fleet.Alloc {
	a := *c.Alloc
	if c.DesiredStatus != "" {
		a.DesiredStatus = c.DesiredStatus
		a.DesiredTransition = fleet.DesiredTransition{}
		a.StopWindows = c.Windows
	}
	a.Retired = a.Retired || c.Retires
	if c.ClientStatus != "" {
		a.ClientStatus = c.ClientStatus
	}
	if len(c.Record) > 0 {
		a.AllocStates = append(a.AllocStates[:len(a.AllocStates):len(a.AllocStates)], c.Record...)
	}
	if c.Update && job != nil {
		a.Job, a.JobVersion, a.JobHash = job, job.Version, job.SpecHash
	}
	if c.Deployment != "" {
		a.DeploymentID, a.DeploymentStatus = c.Deployment, nil
	}
	a.FollowupEvalID = c.FollowUp
	a.DesiredDescription = c.Reason
	return a
}

// Unplaced returns an allocation that failed as it is when there is no room for what is to
// replace it: its reschedule tracker says so, and the next decision tries again.
func (c Change) Unplaced(job *fleet.Job) fleet.Alloc {
	a := c.Apply(job)
	t := fleet.RescheduleTracker{}
	if a.RescheduleTracker != nil {
		t = *a.RescheduleTracker
	}
	t.LastReschedule = fleet.RescheduleUnplaced
	a.RescheduleTracker = &t
	a.DesiredDescription = c.Reason + " when a node has room"
	return a
}

// GroupSummary counts one group's decisions. An allocation that is stopped to be
// started anew with a newer version counts as Destructive, not as Place and Stop.
type GroupSummary struct {
	Desired, Place, Stop, Lost, Unknown, Reconnect, InPlace, Destructive, Canary, Ignore int
}
