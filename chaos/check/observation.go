package check

import (
	"time"

	"skerry/fleet"
)

// Observation is one thing that was seen while a run went on: exactly one of the
// pointers is set. Observations of one goroutine are fed in their order; those of
// several may come a little out of it.
type Observation struct {
	At time.Duration // since the run's start, by the run's own clock

	Applied   *Applied   `json:",omitempty"`
	Hub       *Hub       `json:",omitempty"`
	Edge      *Edge      `json:",omitempty"`
	Process   *Process   `json:",omitempty"`
	Task      *Task      `json:",omitempty"`
	Job       *fleet.Job `json:",omitempty"` // registered, or stopped (Stop), as it was acknowledged
	Refused   *Refused   `json:",omitempty"`
	Dial      *Dial      `json:",omitempty"`
	Fault     *Fault     `json:",omitempty"`
	Operation *Operation `json:",omitempty"`
	Request   *Request   `json:",omitempty"`
	Usage     *Usage     `json:",omitempty"`
	Snapshot  *Snapshot  `json:",omitempty"`
}

// Snapshot is a hub's state that was written as a snapshot and read again, beside the hub.
type Snapshot struct {
	Hub      string
	Index    fleet.Index
	State    string // digest of the state that was written
	Restored string // digest of what was read
	Failed   string `json:",omitempty"` // why it could not be written or read
}

// Applied is a command that a hub applied. Command, Result and State are the same
// on every hub, or the hubs differ.
type Applied struct {
	Hub     string
	Index   fleet.Index
	Term    uint64
	Kind    string     // what the command is called
	Command string     // digest of the command
	Result  string     // digest of what applying it gave
	Refused fleet.Code `json:",omitempty"` // the command as a whole was
	State   string     `json:",omitempty"` // digest of the state after it; "": not taken
	// Effects are what it did. Of one entry they are needed once, from any hub (see
	// Monitor.Wants); nil: not looked at.
	Effects *Effects `json:",omitempty"`
}

// Effects are what a command did to what edges and jobs can tell.
type Effects struct {
	Opened  *Opened            `json:",omitempty"` // a session
	Fenced  *Fenced            `json:",omitempty"` // a session that was refused for good
	Moved   []Moved            `json:",omitempty"` // nodes that missed their deadline
	Batches []Batch            `json:",omitempty"` // journal rows
	Allocs  []fleet.Alloc      `json:",omitempty"` // what a plan changed or placed, as it is after it; Job may be nil
	Nodes   []fleet.Node       `json:",omitempty"` // where Allocs are, after it
	Loads   []Load             `json:",omitempty"` // what those nodes bear, after it
	Evals   []fleet.Evaluation `json:",omitempty"` // made by it
	Jobs    []JobChange        `json:",omitempty"`
	// Recorded are the rows of Batches as allocations' histories have them since.
	Recorded []Recorded `json:",omitempty"`

	Rollouts []Rollout   `json:",omitempty"` // what a plan starts of them
	Advances []Advance   `json:",omitempty"` // what a plan gives a newer version to
	Ended    []Ended     `json:",omitempty"` // deployments that succeeded or failed
	Promoted []Promotion `json:",omitempty"`
	Launched *Launch     `json:",omitempty"`
	// Dispatched is a job that somebody dispatched, or had dispatched before.
	Dispatched *Dispatch       `json:",omitempty"`
	Drains     []Drain         `json:",omitempty"` // that begin, change or end
	Flagged    []fleet.AllocID `json:",omitempty"` // to be stopped and replaced
}

// Rollout is what a plan does to the rollout of a group's version, and what of it is in
// sight after the plan.
type Rollout struct {
	Deployment              fleet.DeploymentID
	Job                     fleet.JobID
	Group                   string
	Version                 uint64
	System                  bool   `json:",omitempty"` // one on each node: Asked is a percentage
	MaxParallel, MaxPerSite int    `json:",omitempty"` // 0: no bound
	Asked, Wanted           int    `json:",omitempty"` // canaries, as the job says and as the deployment counts
	Held                    bool   `json:",omitempty"` // its canaries are not promoted
	Turns                   []Turn `json:",omitempty"` // what the plan starts anew
	Starting                []Part `json:",omitempty"` // started by earlier plans, or to be where these made room, and not known to be healthy
	Canaries                []Part `json:",omitempty"`
}

// Turn is an allocation in service that a plan takes down for the newest version. Alloc is
// what takes its place; "": it is stopped first, so that there is room.
type Turn struct {
	Alloc, Old fleet.AllocID
	Node       fleet.NodeID `json:",omitempty"` // of Old
	Site       string       // of Old
	Canary     bool         `json:",omitempty"`
	Served     bool         `json:",omitempty"` // Old was not being rolled out itself
}

// Part is an allocation as far as a rollout is concerned.
type Part struct {
	Alloc  fleet.AllocID
	Node   fleet.NodeID
	Site   string `json:",omitempty"` // "": another one than that of what it replaced
	Canary bool   `json:",omitempty"`
	Away   bool   `json:",omitempty"` // its node is not ready
	Lost   bool   `json:",omitempty"` // stopped since it was lost with its node, and not replaced yet
}

// Advance is a placement of a newer version than what it replaces had.
type Advance struct {
	Alloc    fleet.AllocID
	Node     fleet.NodeID
	Job      fleet.JobID
	From, To uint64
}

// Ended is a deployment that succeeded or failed.
type Ended struct {
	Deployment  fleet.DeploymentID
	Job         fleet.JobID
	Status, Why string
	Groups      []GroupProgress
}

// GroupProgress is how far a group of it is.
type GroupProgress struct {
	Group    string
	WaitFor  string         `json:",omitempty"`
	Total    int            // that were to become healthy
	Healthy  int            // that are
	Deferred int            // that are away, and not healthy
	Behind   []Part         `json:",omitempty"` // what runs on with other tasks than the version has, and nobody stands in for
	Away     []fleet.NodeID `json:",omitempty"`
	// PerSite is max_unavailable_per_site, and AwaySites are where Away are missed: who is away
	// may hold a site's budget, and the others of the site are then deferred with it.
	PerSite   int      `json:",omitempty"`
	AwaySites []string `json:",omitempty"`
}

// Promotion is a deployment whose canaries were promoted; Auto says that they promote
// themselves.
type Promotion struct {
	Deployment fleet.DeploymentID
	Job        fleet.JobID
	Auto       bool `json:",omitempty"`
}

// Launch is a child of a job that is launched by the clock. Its name has the time.
type Launch struct {
	Job, Child fleet.JobID
	Alone      bool          `json:",omitempty"` // the job prohibits overlap
	Beside     []fleet.JobID `json:",omitempty"` // other children that are not over
}

// Dispatch is what a dispatch answers with. Its token names it, however often it is asked
// for.
type Dispatch struct {
	Job, Child fleet.JobID
	Token      string
}

// Drain is what an entry does to the drain of a node.
type Drain struct {
	Node       fleet.NodeID
	Deadline   time.Duration `json:",omitempty"` // from now on; 0: none
	KeepSystem bool          `json:",omitempty"`
	Over       bool          `json:",omitempty"`
	Emptied    bool          `json:",omitempty"` // by the drainer
	Deadlined  bool          `json:",omitempty"` // which its deadline told to
}

// TagMeta is the key of a job's meta that carries the tag of a registration.
const TagMeta = "tag"

// JobChange is a job that was registered or deregistered.
type JobChange struct {
	Job  fleet.JobID
	Tag  string `json:",omitempty"` // of a registration
	Stop bool   `json:",omitempty"`
	// Version is the job's after a registration.
	Version uint64 `json:",omitempty"`
}

// Recorded are the numbers of the rows that an entry added to the history of an
// allocation, in the order in which they stand there.
type Recorded struct {
	Node  fleet.NodeID
	Alloc fleet.AllocID
	Rows  []fleet.Seq
	Full  bool `json:",omitempty"` // it is at its bound, and may have let go even of these
}

// Opened is a session that was committed.
type Opened struct {
	Node    fleet.NodeID
	Session uint64
	Boot    fleet.BootID
	Hub     fleet.HubID
	Epoch   fleet.Epoch
	Status  fleet.NodeStatus // after it
	Head    fleet.Seq        // that its Hello announced
	Applied fleet.Seq
	Lost    string `json:",omitempty"` // why its journal lacks rows
}

// Fenced is a session that was refused for having another machine's identity.
type Fenced struct {
	Node fleet.NodeID
	Code fleet.Code
}

// Moved is a node that missed its deadline.
type Moved struct {
	Node   fleet.NodeID
	Epoch  fleet.Epoch      // of the session whose deadline it was
	Newest fleet.Epoch      // of the node's newest session
	Status fleet.NodeStatus // after it
}

// Batch is a node's part of an entry of journal rows, and what became of it.
type Batch struct {
	Node    fleet.NodeID
	Epoch   fleet.Epoch
	First   fleet.Seq
	Rows    []fleet.Transition
	Base    bool       `json:",omitempty"` // the edge holds nothing older any more
	Code    fleet.Code `json:",omitempty"` // why it was refused; "": it was applied
	Applied fleet.Seq  // where the cluster then stands
	Status  fleet.NodeStatus
}

// Load is what the allocations that occupy a node take of it, counted anew.
type Load struct {
	Node fleet.NodeID
	Name string
	Used fleet.Resources
	Free fleet.Resources
	// Clash is the port, core or device that two of them were given; "": none is.
	Clash string `json:",omitempty"`
}

// What happens to processes.
const (
	ProcessStart    = "start"
	ProcessStop     = "stop" // asked to
	ProcessKill     = "kill"
	ProcessReboot   = "reboot"    // the machine went down; a start follows
	ProcessPowerCut = "power_cut" // as ProcessReboot, and what was not synced is gone
)

// Process is a hub, an agent or its machine that starts or ends.
type Process struct {
	Name string
	Edge bool // it is an edge's; else a hub's
	What string
	Boot fleet.BootID `json:",omitempty"` // of a start
}

// What happens to tasks.
const (
	TaskStarted  = "started"
	TaskExited   = "exited"   // by itself
	TaskStopped  = "stopped"  // its agent ended it
	TaskVanished = "vanished" // with its machine
)

// Task is the truth about a task: told by the task or its driver, not by any
// record of the fleet.
type Task struct {
	Edge  string
	Alloc fleet.AllocID
	Task  string
	What  string
	Exit  int  `json:",omitempty"`
	Fails bool `json:",omitempty"` // it exited with a failure
	// Wall is the true time of a stop; zero: not known.
	Wall time.Time `json:",omitzero"`
}

// Refused is a message or a session that was refused.
type Refused struct {
	By     string       // hub or edge
	From   string       // edge, hub or client
	Node   fleet.NodeID `json:",omitempty"`
	Code   fleet.Code
	Reason string `json:",omitempty"`
}

// Dial is an attempt of an edge to reach any hub: the beginning of a round.
type Dial struct{ Edge string }

// Effect is what a fault does, as far as it excuses anything.
type Effect string

const (
	Severs    Effect = "severs"     // nothing passes between the targets and the hubs (a hub: and anybody) for as long as it lasts
	Impairs   Effect = "impairs"    // what passes is late, lost, twice, or comes from elsewhere; or nothing does, at times
	Halts     Effect = "halts"      // the target's process is killed or stands still
	Reboots   Effect = "reboots"    // the target's machine goes down
	Damages   Effect = "damages"    // the target's files lose what was written
	Chokes    Effect = "chokes"     // the target cannot write, or only slowly
	MovesTime Effect = "moves-time" // the target's wall clock is wrong from here on
	Rewinds   Effect = "rewinds"    // the hubs are put back to an older copy of their data
	Clones    Effect = "clones"     // the target's identity is used twice
	EndsTasks Effect = "ends-tasks" // tasks end, or cannot be started, whatever their agent does
)

// Fault is the beginning or the end of a fault. Every fault has both, also where they
// are at one time.
type Fault struct {
	ID      int // unique in the run
	Kind    string
	Detail  string   `json:",omitempty"` // what of it, for people: "one way", "satellite"
	Targets []string `json:",omitempty"` // hubs and edges by name; none: everyone
	Effects []Effect `json:",omitempty"`
	End     bool     `json:",omitempty"`
	// Hits is how often it really did something, known at its end.
	Hits uint64 `json:",omitempty"`
}

// What clients ask for.
const (
	OpRegister   = "register"
	OpRead       = "read"
	OpDeregister = "deregister"
	OpPurge      = "purge"
)

// How an operation ended. Unknown may or may not have taken place, at any time
// from its call on.
const (
	OutcomeOK       = "ok"
	OutcomeRefused  = "refused" // surely without an effect
	OutcomeConflict = "conflict"
	OutcomeNotFound = "not_found"
	OutcomeUnknown  = "unknown"
)

// Operation is what a client asked of the cluster and was told, fed when it
// returned (At is its return). Only reads in the API's default, consistent mode
// belong here.
type Operation struct {
	Client  string
	Does    string
	Job     fleet.JobID
	Call    time.Duration
	Outcome string
	// Tag is what was written or read: a word of the job's meta that is unique to
	// one registration.
	Tag string `json:",omitempty"`
	// Check is the job modify index that a registration insists on, where it
	// Enforces one; 0 is that there is no such job.
	Check    fleet.Index `json:",omitempty"`
	Enforces bool        `json:",omitempty"`
	// Modify is the job modify index that was read; of a change, the entry that made it
	// (0: the answer named none). Stopped is whether the job that was read is stopped.
	Modify  fleet.Index `json:",omitempty"`
	Stopped bool        `json:",omitempty"`
}

// Request is what a person asked for that ends a task: on site, or of a hub.
type Request struct {
	Edge  string        `json:",omitempty"` // on site; "": of a hub
	Alloc fleet.AllocID `json:",omitempty"` // "": all of the edge
	What  string        // "stop", "restart", "drain", AskPromote
	Job   fleet.JobID   `json:",omitempty"` // AskPromote
}

// AskPromote is that somebody asks for a job's canaries to be promoted.
const AskPromote = "promote"

// Usage is what a process takes, or a member within one.
type Usage struct {
	Who string
	// Quiet says that nothing was going on when it was taken: samples are only
	// compared with each other where nothing was.
	Quiet      bool
	Goroutines int   `json:",omitempty"` // 0: not known, as with the others
	HeapBytes  int64 `json:",omitempty"`
	Files      int   `json:",omitempty"`
	DiskBytes  int64 `json:",omitempty"`
}
