package fleet

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Desired statuses of an allocation.
const (
	DesiredRun   = "run"
	DesiredStop  = "stop"
	DesiredEvict = "evict"
)

// Client statuses of an allocation: its edge reports them, except unknown and lost, which the
// hub concludes.
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
	// Retired says that the allocation ended by itself and the hub has replaced it, or wants no
	// replacement. Its desired status does not change.
	Retired bool `json:",omitempty"`
	// StopWindows are the update windows in which its edge may begin to stop it for a newer
	// version. None: at once.
	StopWindows       []UpdateWindow `json:",omitempty"`
	ClientStatus      string
	ClientDescription string
	// ReportedStatus is the last client status that the edge reported. It differs from
	// ClientStatus while the hub takes the allocation for unknown or lost.
	ReportedStatus string
	TaskStates     map[string]TaskState
	AllocStates    []AllocState
	// Held says that somebody on site stopped the allocation, which stays so until somebody there starts it; nil:
	// it is not held.
	Held *Hold `cbor:",omitempty" json:",omitempty"`
	// StoppedOnEdge says that its edge has stopped it for good, and no hub had told it to. If it is complete, that does not mean
	// that its work is done.
	StoppedOnEdge bool `cbor:",omitempty" json:",omitempty"`
	// NetworkStatus is how it is reached in a network of its own, as its edge reported it; nil: it has none.
	NetworkStatus *NetworkStatus `cbor:",omitempty" json:",omitempty"`

	DeploymentID       DeploymentID
	DeploymentStatus   *AllocDeployment // nil: of no deployment, or nothing known of it yet
	FollowupEvalID     EvalID
	PreviousAllocation AllocID
	NextAllocation     AllocID
	RescheduleTracker  *RescheduleTracker
	// PreemptedAllocations were evicted to make room for this allocation.
	// PreemptedByAllocation is the one that this allocation was evicted for; it is known once
	// that one is placed.
	PreemptedAllocations  []AllocID `json:",omitempty"`
	PreemptedByAllocation AllocID   `json:",omitempty"`
	// PreemptedFor names the job for which it was evicted: NAMESPACE/ID.
	PreemptedFor string `cbor:",omitempty" json:"-"`
	// FormerRunsAlone is for how long its edge may run it without a hub by another version, where that is longer than by Job. It
	// counts until the edge has received AllocModifyIndex.
	FormerRunsAlone time.Duration `cbor:",omitempty" json:"-"`

	CreateIndex      Index
	ModifyIndex      Index
	AllocModifyIndex Index // changes only when the hub's side does
	CreateTime       int64 // UnixNano, hub's clock
	ModifyTime       int64 // UnixNano, hub's clock
}

// RunsAloneFor returns for how long its edge, which has received the desired state of that index, may run the allocation
// without a hub. RunsOn: without an end.
func (a *Alloc) RunsAloneFor(received Index) time.Duration {
	alone := a.Group().RunsAloneFor()
	if received < a.AllocModifyIndex {
		alone = max(alone, a.FormerRunsAlone)
	}
	return alone
}

// SetFormerRunsAlone records that its edge may run the allocation for that long by another version than Job.
func (a *Alloc) SetFormerRunsAlone(alone time.Duration) {
	a.FormerRunsAlone = 0
	if alone > a.Group().RunsAloneFor() {
		a.FormerRunsAlone = alone
	}
}

// DesiredTransition is an operator's request that the next plan carries out.
type DesiredTransition struct {
	Migrate    bool // replace it, on any node
	Reschedule bool
	// NoShutdownDelay makes the edge skip every shutdown_delay, also one that has begun.
	NoShutdownDelay bool `json:",omitempty"`
}

// AllocState records a conclusion of the hub. The last entry says whether a reconnection is
// still to be reconciled.
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

// AllocMetric explains the placement of an allocation, or why there was none.
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
	// RejectedNodes are some of the nodes that did not suit or were full, each with the reason.
	// Only a failed placement has them.
	RejectedNodes []NodeRejection `json:",omitempty"`
	// NodesAway counts the disconnected or down nodes that would have taken the placement.
	// Only a failed placement has them.
	NodesAway int `json:",omitempty"`
}

// NodeRejection says why the scheduler rejected a node.
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

// TaskState is the state of a task as its edge reported it last.
type TaskState struct {
	State       string
	Failed      bool
	Restarts    uint64
	LastRestart *time.Time
	StartedAt   *time.Time // edge's wall clock: shown, never decided on
	FinishedAt  *time.Time
	// RunningFor is how long the task ran until the edge's last report, by the edge's monotonic
	// clock.
	RunningFor time.Duration
	// RunningSince is the start of a running task by the cluster's clock (UnixNano): RunningFor
	// before the report came. It decides longest_running. 0: the task does not run.
	RunningSince int64 `json:",omitempty"`
	// Address is the task's own in a network that its driver made; a row of its own reports it. "": none.
	Address string `cbor:",omitempty" json:",omitempty"`
	Events  []TaskEvent
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
	TaskIdentity      = "Identity" // the token of an identity was renewed, is waited for, or cannot be written
	TaskConsul        = "Consul"   // the same of Consul
	TaskVault         = "Vault"    // a task waits for Vault, got another token, or goes on with what it had
	TaskTemplate      = "Template" // a template was rendered, waits for its sources, or is older than they are

	TaskHealth = "Driver Health" // the driver, or a task's own check as its driver reports it, began to fail or to pass

	TaskDownloadingArtifacts   = "Downloading Artifacts"
	TaskFailedArtifactDownload = "Failed Artifact Download"
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

// ClientTerminal reports whether the allocation has ended on its edge, or is lost.
func (a *Alloc) ClientTerminal() bool { return IsClientTerminal(a.ClientStatus) }

// IsClientTerminal reports whether a client status is that of an allocation that has ended on its edge, or is lost.
func IsClientTerminal(status string) bool {
	switch status {
	case ClientComplete, ClientFailed, ClientLost:
		return true
	}
	return false
}

// ServerTerminal reports whether the hub wants the allocation to stop.
func (a *Alloc) ServerTerminal() bool {
	return a.DesiredStatus == DesiredStop || a.DesiredStatus == DesiredEvict
}

// NoLongerWanted reports whether the allocation is to stop, or ended by itself and is retired.
func (a *Alloc) NoLongerWanted() bool { return a.ServerTerminal() || a.Retired }

// Vacated reports whether the hub stopped the allocation and has not replaced it yet. Evictions
// and an operator's stop do not count.
func (a *Alloc) Vacated() bool {
	return a.NoLongerWanted() && a.DesiredStatus != DesiredEvict && a.NextAllocation == "" && !a.DesiredTransition.Migrate
}

// AwaitsWindow reports whether the allocation is to stop, and its edge may wait for an update
// window first.
func (a *Alloc) AwaitsWindow() bool {
	return a.ServerTerminal() && !a.ClientTerminal() && len(a.StopWindows) > 0
}

// Terminal reports whether the allocation neither runs nor shall run.
func (a *Alloc) Terminal() bool { return a.ServerTerminal() || a.ClientTerminal() }

// AwaitsPlacement reports whether the allocation failed, and no node had room for its
// replacement yet.
func (a *Alloc) AwaitsPlacement() bool {
	t := a.RescheduleTracker
	return t != nil && t.LastReschedule == RescheduleUnplaced && a.DesiredStatus == DesiredStop &&
		a.ClientStatus == ClientFailed && a.NextAllocation == ""
}

// OccupiesNode reports whether the allocation holds resources of its node: until the edge
// confirms its end. A lost allocation may still run there, if its edge said so last.
func (a *Alloc) OccupiesNode() bool {
	if a.ClientStatus == ClientLost {
		return a.ReportedStatus == ClientPending || a.ReportedStatus == ClientRunning
	}
	return !a.ClientTerminal()
}

// EndedOnEdge reports whether the edge reported the end of the allocation.
func (a *Alloc) EndedOnEdge() bool {
	return a.ReportedStatus == ClientComplete || a.ReportedStatus == ClientFailed
}

// NeedsToReconnect reports whether the last client status that the hub recorded is unknown: the
// allocation's return is not reconciled yet. Empty entries do not count.
func (a *Alloc) NeedsToReconnect() bool { return a.lastRecorded() == ClientUnknown }

// WasGivenUp reports whether the last client status that the hub recorded is lost, whatever its
// edge reported since.
func (a *Alloc) WasGivenUp() bool { return a.lastRecorded() == ClientLost }

// DoneAfterAll reports whether a hub gave up an allocation of a batch job, which has no replacement yet, and its edge reported
// since that its main tasks had ended by themselves, with success: its work is done.
func (a *Alloc) DoneAfterAll() bool {
	return a.Job != nil && a.Job.Type == JobTypeBatch && a.DesiredStatus == DesiredStop && !a.Retired && a.NextAllocation == "" && a.WasGivenUp() &&
		a.ClientStatus == ClientComplete && !a.StoppedOnEdge && !a.wasKilled()
}

// wasKilled reports whether a main task was killed since its last start; that of the leader ends the others, and counts alone.
func (a *Alloc) wasKilled() bool {
	g := a.Group()
	if g == nil {
		return false
	}
	hasLeader := slices.ContainsFunc(g.Tasks, func(t Task) bool { return t.Leader })
	return slices.ContainsFunc(g.Tasks, func(t Task) bool {
		counts := t.Leader || !hasLeader && t.Lifecycle == nil
		return counts && a.TaskStates[t.Name].wasKilled()
	})
}

// wasKilled reports whether the task was killed since its last start.
func (s TaskState) wasKilled() bool {
	for _, e := range slices.Backward(s.Events) {
		switch e.Type {
		case TaskKilled, TaskKilling:
			return true
		case TaskStarted:
			return false
		}
	}
	return false
}

// lastRecorded returns the last client status in AllocStates, "" for none.
func (a *Alloc) lastRecorded() string {
	for i := len(a.AllocStates) - 1; i >= 0; i-- {
		if s := a.AllocStates[i]; s.Field == AllocStateClientStatus && s.Value != "" {
			return s.Value
		}
	}
	return ""
}

// LastUnknown returns when the allocation last became unknown, or zero.
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
