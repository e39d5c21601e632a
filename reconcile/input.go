package reconcile

import (
	"time"

	"skerry/fleet"
)

// Input is all that a decision depends on: one job, and the state of the cluster that concerns it.
type Input struct {
	Job       *fleet.Job // nil: purged
	Namespace string
	JobID     fleet.JobID
	EvalID    fleet.EvalID
	Priority  int
	// Allocs are all allocations of the job, terminal ones included, in any order. Alloc.Job is the
	// version that it runs; if it is nil, its tasks count as changed.
	Allocs []*fleet.Alloc
	Nodes  map[fleet.NodeID]*fleet.Node // the nodes of Allocs; a missing one was removed
	// Targets are the nodes that may get new allocations of a system or sysbatch job: the ready and
	// eligible ones in its pool and datacenters.
	Targets []*fleet.Node
	// Deployment is the job's newest deployment, active or not; nil: none.
	Deployment *fleet.Deployment
	// DefaultDisconnect has, by node pool, the rule for groups without a disconnect block. A missing
	// pool has fleet.DisconnectKeep.
	DefaultDisconnect map[string]string
	// Waiting has the times of the job's pending follow-up evaluations (Output.FollowUps of earlier
	// decisions) that are still in the future.
	Waiting map[fleet.EvalID]time.Time
	// Suits returns why a node does not suit the newest version of a group; "": it does. Resources do not matter.
	// passing: the reason may end by itself, so what runs on the node stays. nil: every node suits.
	Suits func(n *fleet.Node, group string) (reason string, passing bool)
	// Room reports whether the newest version of a system job fits on the node of prev if it replaces
	// prev. nil: it always fits.
	Room func(prev *fleet.Alloc) bool
	// Window returns the state of a group's update windows on a node now. nil: always open.
	Window func(n *fleet.Node, group string) Window
	Now    time.Time     // leader's clock
	NewID  func() string // makes ids of evaluations and deployments
}

// Output is the decision. Every allocation of the input is in exactly one of Stops, Retired, Lost,
// Unknown, Reconnects, InPlace and Kept. Each list is ordered by group and name; new names come last in
// their group.
type Output struct {
	Place      []Placement
	Stops      []Change // get the desired status stop
	Retired    []Change // have ended by themselves and are no longer wanted; the desired status stays
	Unknown    []Change // become unknown, because their node is away
	Lost       []Change // get the client status lost and the desired status stop
	Reconnects []Change // are kept after an absence
	InPlace    []Change // take the newest version of the job; their tasks run on
	Kept       []Change // stay as they are; only written if Waits is true
	// FollowUps are new evaluations for a later time (WaitUntil). Change.FollowUp says which
	// allocation waits for which.
	FollowUps []fleet.Evaluation
	// Cancel lists evaluations of Input.Waiting that are no longer needed.
	Cancel []fleet.EvalID
	// Deployment is a deployment that begins now, or nil. DeploymentUpdates end others.
	Deployment        *fleet.Deployment
	DeploymentUpdates []fleet.DeploymentUpdate
	// Groups counts the decisions by group, for people and checkers.
	Groups map[string]GroupSummary
}

// Placement asks for a new allocation.
type Placement struct {
	Name     string
	Group    string
	Previous *fleet.Alloc // the allocation that it replaces; nil: none
	// Tracker is the reschedule tracker of the new allocation; nil: it is not a rescheduling.
	Tracker *fleet.RescheduleTracker
	Node    fleet.NodeID // the only node to place it on; "": any
	Job     *fleet.Job   // the version to place; nil: the newest
	Canary  bool
	// Deployment is the deployment that it belongs to; "": none.
	Deployment fleet.DeploymentID
	AvoidNode  fleet.NodeID // the node on which Previous failed or that is away; "": none
	Reason     string
}

// Change is a change of one existing allocation. A field with its zero value leaves the allocation as it
// is.
type Change struct {
	Alloc         *fleet.Alloc
	DesiredStatus string
	ClientStatus  string
	Record        []fleet.AllocState // appended to its AllocStates
	// FollowUp is the evaluation that it waits for from now on; "": none.
	FollowUp fleet.EvalID
	// Update gives it the job's newest version.
	Update bool
	// Deployment is the deployment that it belongs to from now on; "": as before.
	Deployment fleet.DeploymentID
	// Retires sets Alloc.Retired: it ended by itself, and is no longer wanted.
	Retires bool
	// Destructive says that the stop is part of a destructive update.
	Destructive bool
	// WithPlacement makes the change depend on the placement that has the allocation as Previous. If that
	// finds no node, the allocation stays as it is.
	WithPlacement bool
	// Reschedules says that the allocation failed and is replaced by its reschedule policy. If the
	// replacement finds no node, the allocation is stopped all the same: see Unplaced.
	Reschedules bool
	// Windows are the update windows in which the edge may begin the stop; none: at once.
	Windows []fleet.UpdateWindow
	Reason  string
}

// Waits reports whether the allocation has to wait for another evaluation than before, so that it must be
// written even if nothing else changes.
func (c Change) Waits() bool { return c.FollowUp != "" && c.FollowUp != c.Alloc.FollowupEvalID }

// Apply returns a copy of the allocation with the change; job is the newest version.
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

// Unplaced returns a copy of a failed allocation whose replacement found no node. It sets LastReschedule to
// fleet.RescheduleUnplaced, so that the next decision tries again. job is passed to Apply.
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

// GroupSummary counts the decisions for one group. A destructive update counts once, as Destructive, not
// as Place and Stop.
type GroupSummary struct {
	Desired, Place, Stop, Lost, Unknown, Reconnect, InPlace, Destructive, Canary, Ignore int
}
