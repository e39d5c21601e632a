package fleet

import (
	"strconv"
	"strings"
	"time"
)

// What the hub wants of an allocation.
const (
	DesiredRun   = "run"
	DesiredStop  = "stop"
	DesiredEvict = "evict"
)

// What is known of an allocation: reported by its edge, but for unknown and
// lost, which the hub concludes.
const (
	ClientPending  = "pending"
	ClientRunning  = "running"
	ClientComplete = "complete"
	ClientFailed   = "failed"
	ClientLost     = "lost"
	ClientUnknown  = "unknown"
)

// Alloc is one instance of a task group, given to one node.
type Alloc struct {
	ID                 AllocID
	Namespace          string
	EvalID             EvalID
	Name               string // JOB.GROUP[INDEX]
	NodeID             NodeID
	NodeName           string
	JobID              JobID
	Job                *Job `cbor:"-" json:",omitempty"` // the version it runs; shared, never changed
	JobVersion         uint64
	JobHash            string // Job.SpecHash: names the body on the wire and in the state
	TaskGroup          string
	AllocatedResources Resources
	Allotment          *AssignedResources `json:",omitempty"` // nil: amounts alone
	Score              float64            // of the placement, for best_score
	Metrics            *AllocMetric

	DesiredStatus      string
	DesiredDescription string
	DesiredTransition  DesiredTransition
	// Retired: it ended by itself, and the hub has dealt with that: another one took its
	// place, or none is wanted. Its desired status stays as it was.
	Retired bool `json:",omitempty"`
	// StopWindows are the windows of updates in which its edge may begin the stop that is
	// wanted, for it is stopped to be replaced by a newer version. None: at once.
	StopWindows       []UpdateWindow `json:",omitempty"`
	ClientStatus      string
	ClientDescription string
	// ReportedStatus is the last client status that the edge itself reported. It
	// differs from ClientStatus while the hub holds the allocation for unknown or
	// lost.
	ReportedStatus string
	TaskStates     map[string]TaskState
	AllocStates    []AllocState

	DeploymentID       DeploymentID
	DeploymentStatus   *AllocDeployment // nil: of no deployment, or nothing known of it yet
	FollowupEvalID     EvalID
	PreviousAllocation AllocID
	NextAllocation     AllocID
	RescheduleTracker  *RescheduleTracker
	// PreemptedAllocations were evicted from its node so that it found room there, and
	// PreemptedByAllocation is for whose room it was evicted itself: known when that is
	// placed, which is after the eviction.
	PreemptedAllocations  []AllocID `json:",omitempty"`
	PreemptedByAllocation AllocID   `json:",omitempty"`
	// PreemptedFor names the job for which it was evicted: NAMESPACE/ID.
	PreemptedFor string `cbor:",omitempty" json:"-"`

	CreateIndex      Index
	ModifyIndex      Index
	AllocModifyIndex Index // changes only when the hub's side does
	CreateTime       int64 // UnixNano, hub's clock
	ModifyTime       int64 // UnixNano, hub's clock
}

// DesiredTransition is what an operator asked for, on the way to a plan.
type DesiredTransition struct {
	Migrate    bool // replace it, on any node
	Reschedule bool
	// NoShutdownDelay has its edge leave out every shutdown_delay when it stops it, and
	// end one that has begun.
	NoShutdownDelay bool `json:",omitempty"`
}

// AllocState is an entry in the record of what the hub concluded, in order. The
// last one says whether a reconnection is still to be settled.
type AllocState struct {
	Field string // AllocStateClientStatus
	Value string
	Time  time.Time // hub's clock
}

// AllocStateClientStatus is the only field recorded so far.
const AllocStateClientStatus = "ClientStatus"

// RescheduleTracker records the failed attempts that led to an allocation.
type RescheduleTracker struct {
	Events         []RescheduleEvent
	LastReschedule string // RescheduleOK, "pending" or RescheduleUnplaced
}

// How the last attempt to replace a failed allocation went.
const (
	RescheduleOK       = "ok"
	RescheduleUnplaced = "no placement"
)

// RescheduleEvent is one replacement of a failed allocation.
type RescheduleEvent struct {
	RescheduleTime int64 // UnixNano
	PrevAllocID    AllocID
	PrevNodeID     NodeID
	Delay          time.Duration
}

// AllocMetric is why an allocation was placed where it is, or not at all.
type AllocMetric struct {
	NodesEvaluated     int
	NodesFiltered      int
	NodesInPool        int
	NodePool           string         `json:",omitempty"` // of a placement that failed: the job's
	NodesAvailable     map[string]int // by datacenter
	ClassFiltered      map[string]int
	ConstraintFiltered map[string]int
	NodesExhausted     int
	ClassExhausted     map[string]int
	DimensionExhausted map[string]int
	// ResourcesExhausted is what each task asks for, of a placement that failed for lack of room.
	ResourcesExhausted map[string]Resources `json:",omitempty"`
	ScoreMetaData      []NodeScore
	AllocationTime     time.Duration
	CoalescedFailures  int
	// RejectedNodes are some of those that did not suit or were full, each with what it
	// lacks: of a placement that failed.
	RejectedNodes []NodeRejection `json:",omitempty"`
	// NodesAway counts the nodes that are disconnected or down, and on which the placement
	// would have found a place: of a placement that failed.
	NodesAway int `json:",omitempty"`
}

// NodeRejection is why one node was left out.
type NodeRejection struct {
	NodeID   NodeID
	NodeName string
	Why      string
}

// NodeScore is one candidate's score.
type NodeScore struct {
	NodeID    NodeID
	Scores    map[string]float64
	NormScore float64
}

// Task states.
const (
	TaskPending = "pending"
	TaskRunning = "running"
	TaskDead    = "dead"
)

// TaskState is what an edge last said of one task.
type TaskState struct {
	State       string
	Failed      bool
	Restarts    uint64
	LastRestart *time.Time
	StartedAt   *time.Time // edge's wall clock: shown, never decided on
	FinishedAt  *time.Time
	// RunningFor is how long it had been running when the edge last reported it,
	// by the edge's monotonic clock.
	RunningFor time.Duration
	// RunningSince is when a running task started, by the cluster's clock (UnixNano):
	// RunningFor before the cluster heard of that. It decides longest_running. 0: it
	// does not run.
	RunningSince int64 `json:",omitempty"`
	Events       []TaskEvent
}

// TaskEventsKept is how many events a TaskState holds; the history has them all.
const TaskEventsKept = 10

// TaskEvent types, as Nomad's users know them.
const (
	TaskReceived      = "Received"
	TaskSetup         = "Task Setup"
	TaskStarted       = "Started"
	TaskDriverFailure = "Driver Failure"
	TaskTerminated    = "Terminated"
	TaskRestarting    = "Restarting"
	TaskNotRestarting = "Not Restarting"
	TaskRestartSignal = "Restart Signaled"
	TaskSignaling     = "Signaling"
	TaskWaitsToStop   = "Waiting for shutdown delay" // it is to end, and its services are withdrawn
	TaskKilling       = "Killing"
	TaskKilled        = "Killed"
	TaskRestored      = "Restored"     // found running by an agent that came back
	TaskLostAtReboot  = "Lost At Boot" // the machine rebooted under it
	TaskReconnected   = "Reconnected"
)

// TaskEvent is something that happened to a task.
type TaskEvent struct {
	Type           string
	Time           int64 // UnixNano, edge's wall clock
	DisplayMessage string
	Details        map[string]string
	ExitCode       int
	Signal         int
	FailsTask      bool
}

// ClientTerminal reports whether the edge has finished with the allocation, or
// the hub has given it up.
func (a *Alloc) ClientTerminal() bool {
	switch a.ClientStatus {
	case ClientComplete, ClientFailed, ClientLost:
		return true
	}
	return false
}

// ServerTerminal reports whether the hub wants it gone.
func (a *Alloc) ServerTerminal() bool {
	return a.DesiredStatus == DesiredStop || a.DesiredStatus == DesiredEvict
}

// NoLongerWanted reports whether the hub wants nothing of it any more: it is to stop, or it
// ended by itself and is retired.
func (a *Alloc) NoLongerWanted() bool { return a.ServerTerminal() || a.Retired }

// Vacated reports whether its place is free by the hub's decision, with nothing in its stead
// yet: neither for want of room for others, nor by an operator.
func (a *Alloc) Vacated() bool {
	return a.NoLongerWanted() && a.DesiredStatus != DesiredEvict && a.NextAllocation == "" && !a.DesiredTransition.Migrate
}

// AwaitsWindow reports whether it is to stop, and its edge may have to wait for a window of
// updates before it begins with that.
func (a *Alloc) AwaitsWindow() bool {
	return a.ServerTerminal() && !a.ClientTerminal() && len(a.StopWindows) > 0
}

// Terminal reports whether it neither runs nor shall run.
func (a *Alloc) Terminal() bool { return a.ServerTerminal() || a.ClientTerminal() }

// AwaitsPlacement reports whether it failed and was stopped to be replaced, and no node had
// room for that: its replacement is due as soon as one has.
func (a *Alloc) AwaitsPlacement() bool {
	t := a.RescheduleTracker
	return t != nil && t.LastReschedule == RescheduleUnplaced && a.DesiredStatus == DesiredStop &&
		a.ClientStatus == ClientFailed && a.NextAllocation == ""
}

// OccupiesNode reports whether its resources are taken on its node: until the
// edge has confirmed its end, whatever the hub wants. One that the hub gave up for
// lost may still run there, if that is the last that its edge said of it.
func (a *Alloc) OccupiesNode() bool {
	if a.ClientStatus == ClientLost {
		return a.ReportedStatus == ClientPending || a.ReportedStatus == ClientRunning
	}
	return !a.ClientTerminal()
}

// EndedOnEdge reports whether the edge itself said that it has finished with it.
func (a *Alloc) EndedOnEdge() bool {
	return a.ReportedStatus == ClientComplete || a.ReportedStatus == ClientFailed
}

// NeedsToReconnect reports whether the last client status recorded by the hub is
// unknown: the allocation went out of sight and has not been settled since.
// Empty entries are skipped.
func (a *Alloc) NeedsToReconnect() bool { return a.lastRecorded() == ClientUnknown }

// WasGivenUp reports whether the last client status recorded by the hub is lost, whatever
// its edge said of the allocation since.
func (a *Alloc) WasGivenUp() bool { return a.lastRecorded() == ClientLost }

// lastRecorded is the last client status in AllocStates, "" for none.
func (a *Alloc) lastRecorded() string {
	for i := len(a.AllocStates) - 1; i >= 0; i-- {
		if s := a.AllocStates[i]; s.Field == AllocStateClientStatus && s.Value != "" {
			return s.Value
		}
	}
	return ""
}

// LastUnknown returns when the latest unbroken run of unknown began, or zero.
func (a *Alloc) LastUnknown() time.Time {
	var at time.Time
	for i := len(a.AllocStates) - 1; i >= 0; i-- {
		s := a.AllocStates[i]
		if s.Field != AllocStateClientStatus || s.Value == "" {
			continue
		}
		if s.Value != ClientUnknown {
			break
		}
		at = s.Time
	}
	return at
}

// Group returns the task group it runs, or nil where the job is not known.
func (a *Alloc) Group() *TaskGroup {
	if a.Job == nil {
		return nil
	}
	return a.Job.Group(a.TaskGroup)
}

// NameIndex returns the index at the end of the allocation's name.
func (a *Alloc) NameIndex() (int, bool) {
	open := strings.LastIndexByte(a.Name, '[')
	if open < 0 || !strings.HasSuffix(a.Name, "]") {
		return 0, false
	}
	i, err := strconv.Atoi(a.Name[open+1 : len(a.Name)-1])
	return i, err == nil && i >= 0
}
