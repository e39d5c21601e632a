package check

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"skerry/fleet"
)

// Observation is one fact that was observed while a run went on. Exactly one of the pointers is set. The observations
// of one goroutine are passed in order; those of several may arrive a little out of order.
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

	Variable  *VariableOperation  `json:",omitempty"`
	Held      *HeldVariables      `json:",omitempty"`
	Identity  *HeldIdentities     `json:",omitempty"`
	Delivered *DeliveredVariables `json:",omitempty"`
	Search    *SecretSearch       `json:",omitempty"`
	Probe     *Probe              `json:",omitempty"`
	Answer    *Answer             `json:",omitempty"`
	Audit     *Audit              `json:",omitempty"`
	SiteCode  *SiteCodeUse        `json:",omitempty"`
	Dispatch  *DispatchCall       `json:",omitempty"`
	Given     *GivenInput         `json:",omitempty"`
}

// Probe is a request with a token that does not give what it requires, and the status of its answer; 0: there was none.
type Probe struct {
	Hub     string
	Token   string // what is wrong with it: "a revoked token"
	Attempt string // "register a job"
	Status  int    `json:",omitempty"`
}

// SiteCodeUse is a step in the life of a site code: a hub has acknowledged that it was made or revoked, or a person on the
// site of an edge tried it, and the edge answered.
type SiteCodeUse struct {
	Code       string // its id
	What       string // SiteCodeMade, SiteCodeRevoked or SiteCodeTried
	Edge       string `json:",omitempty"` // of a try
	Capability string `json:",omitempty"` // that the try asked for
	Allowed    bool   `json:",omitempty"`
}

// Values of SiteCodeUse.What, and the one capability that the codes of a run have.
const (
	SiteCodeMade    = "made"
	SiteCodeRevoked = "revoked"
	SiteCodeTried   = "tried"
	SiteCodeMayRead = "read"
)

// Answer is the answer of a hub to a change that a user asked for.
type Answer struct {
	Hub, Verb, Object string
	Status            int           `json:",omitempty"` // 0: there was none
	Index             fleet.Index   `json:",omitempty"` // in its header
	Took              time.Duration // from the request to the answer
}

// Audit is the audit of a hub at a run's end, in the order of its entries.
type Audit struct {
	Hub     string
	Broken  string       `json:",omitempty"` // why its chain does not verify
	Entries []AuditEntry `json:",omitempty"` // of changes
}

// AuditEntry is an entry of an audit, as far as it is compared.
type AuditEntry struct {
	Verb, Object string
	Status       int         `json:",omitempty"`
	Index        fleet.Index `json:",omitempty"`
}

// Values of VariableOperation.Does, besides OpRead.
const (
	OpWrite  = "write"
	OpDelete = "delete"
	OpLock   = "lock" // it acquires the lock
	OpRenew  = "renew"
	OpUnlock = "unlock"
)

// VariableOperation is an operation of a user on a variable, with its outcome. Changes are numbered in the order in which
// users begin them; one user at a time changes a variable, by check-and-set. Callers pass it to Observe when it has
// returned.
type VariableOperation struct {
	Client  string
	Does    string
	Path    string
	Call    time.Duration
	Outcome string
	Value   int           `json:",omitempty"` // number of the change that it makes, or whose value it read
	Found   int           `json:",omitempty"` // number of the change whose value a conflict shows
	TTL     time.Duration `json:",omitempty"` // of a lock
	Failed  string        `json:",omitempty"` // why a hub cannot decrypt the variable
}

// HeldVariables are the variables that an edge has, with the numbers of the changes of their values.
type HeldVariables struct {
	Edge   string
	Values map[string]int `json:",omitempty"`
}

// HeldIdentities are the identities of tasks that an edge has, with their ends from the run's start.
type HeldIdentities struct {
	Edge string
	Ends map[TaskKey]time.Duration `json:",omitempty"`
}

// DeliveredVariables are the paths of the variables in a message to an edge.
type DeliveredVariables struct {
	Edge  string
	Paths []string
}

// SecretSearch is a search for secrets in clear, in the files of a run or in a message. Found are the places.
type SecretSearch struct {
	Who   string   `json:",omitempty"` // the hub or edge; "": the files of all
	Files int      `json:",omitempty"`
	Found []string `json:",omitempty"`
}

// Snapshot is the result of a check of a hub's snapshot: the harness wrote the hub's state as a snapshot, and
// read that into a second state beside the hub.
type Snapshot struct {
	Hub      string
	Index    fleet.Index
	State    string // digest of the state that was written
	Restored string // digest of the state that was read
	Failed   string `json:",omitempty"` // why it could not be written or read
}

// Applied is a command that a hub applied. If Command, Result or State of an entry differ between hubs, the
// hubs diverge.
type Applied struct {
	Hub     string
	Index   fleet.Index
	Term    uint64
	Kind    string     // the command's name
	Command string     // digest of the command
	Result  string     // digest of the result of applying it
	Refused fleet.Code `json:",omitempty"` // why the command as a whole was refused; "": it was not
	State   string     `json:",omitempty"` // digest of the state after it; "": not computed
	// Effects are the changes that it made. For each entry they are needed once, from any
	// hub (see Monitor.Wants); nil: not observed.
	Effects *Effects `json:",omitempty"`

	behindGap *Effects // its effects if they do not count yet; see runContext.learnEntryEffects
}

// Effects are the changes that a command made to nodes, allocations, jobs and deployments, as far as checkers
// judge them.
type Effects struct {
	Opened  *Opened            `json:",omitempty"` // a session that it committed
	Fenced  *Fenced            `json:",omitempty"` // a session that it refused for good
	Moved   []Moved            `json:",omitempty"` // nodes that missed their deadline
	Batches []Batch            `json:",omitempty"` // journal rows
	Allocs  []fleet.Alloc      `json:",omitempty"` // allocations that a plan changed or placed, after it; Job may be nil
	Nodes   []fleet.Node       `json:",omitempty"` // the nodes of Allocs, after it
	Loads   []Load             `json:",omitempty"` // the usage of Nodes, after it
	Evals   []fleet.Evaluation `json:",omitempty"` // made by it
	Jobs    []JobChange        `json:",omitempty"`
	// Recorded are the rows that it added to allocations' histories, from Batches.
	Recorded []Recorded `json:",omitempty"`
	// Described is the node of which it stored a new description.
	Described fleet.NodeID `json:",omitempty"`

	Rollouts []Rollout   `json:",omitempty"` // rollouts of which a plan starts allocations
	Advances []Advance   `json:",omitempty"` // placements of newer versions by a plan
	Ended    []Ended     `json:",omitempty"` // deployments that succeeded or failed
	Promoted []Promotion `json:",omitempty"`
	Launched *Launch     `json:",omitempty"`
	// Dispatched is the answer to a dispatch of a job, also to a repeated one.
	Dispatched *Dispatch       `json:",omitempty"`
	Drains     []Drain         `json:",omitempty"` // drains that begin, change or end
	Flagged    []fleet.AllocID `json:",omitempty"` // allocations that an operator or a drain asks to stop and replace
}

// Rollout is the effect of a plan on the rollout of one version of a group, with the state of that rollout after
// the plan.
type Rollout struct {
	Deployment              fleet.DeploymentID
	Job                     fleet.JobID
	Group                   string
	Version                 uint64
	System                  bool   `json:",omitempty"` // the job runs on each node, and Asked is a percentage
	MaxParallel, MaxPerSite int    `json:",omitempty"` // 0: no bound
	Asked, Wanted           int    `json:",omitempty"` // number of canaries, by the job and by the deployment
	Held                    bool   `json:",omitempty"` // the rollout waits for the promotion of its canaries
	Turns                   []Turn `json:",omitempty"` // allocations that the plan takes down for the version
	Starting                []Part `json:",omitempty"` // started (or given room) by earlier plans, and not known to be healthy
	Canaries                []Part `json:",omitempty"`
}

// Turn is an allocation in service that a plan takes down for the newest version. Alloc is its replacement, or "" if
// the allocation is stopped first and replaced later.
type Turn struct {
	Alloc, Old fleet.AllocID
	Node       fleet.NodeID `json:",omitempty"` // of Old
	Site       string       // of Old
	Canary     bool         `json:",omitempty"`
	Served     bool         `json:",omitempty"` // Old was in service: healthy, or running without a deployment
}

// Part is an allocation with the facts that a rollout depends on.
type Part struct {
	Alloc  fleet.AllocID
	Node   fleet.NodeID
	Site   string `json:",omitempty"` // "": it is at another site than the allocation that it replaced
	Canary bool   `json:",omitempty"`
	Away   bool   `json:",omitempty"` // its node is not ready
	Lost   bool   `json:",omitempty"` // stopped since it was lost with its node, and not replaced yet
}

// Advance is a placement whose job version is newer than that of the allocation that it replaces.
type Advance struct {
	Alloc    fleet.AllocID
	Node     fleet.NodeID
	Job      fleet.JobID
	From, To uint64
}

// Ended is a deployment that succeeded or failed, with the progress of its groups then.
type Ended struct {
	Deployment  fleet.DeploymentID
	Job         fleet.JobID
	Status, Why string
	Groups      []GroupProgress
}

// GroupProgress is the progress of one group of a deployment.
type GroupProgress struct {
	Group    string
	WaitFor  string         `json:",omitempty"`
	Total    int            // allocations that have to become healthy
	Healthy  int            // allocations that are healthy
	Deferred int            // allocations that are not healthy, on nodes that are not ready
	Behind   []Part         `json:",omitempty"` // allocations that run with another version's tasks, without a replacement
	Away     []fleet.NodeID `json:",omitempty"` // nodes that are not ready
	// PerSite is max_unavailable_per_site, and AwaySites are the sites of Away. An allocation on such a node
	// may use up its site's budget; the other allocations of the site are then deferred too.
	PerSite   int      `json:",omitempty"`
	AwaySites []string `json:",omitempty"`
}

// Promotion is a deployment whose canaries were promoted. Auto says that the job has auto_promote.
type Promotion struct {
	Deployment fleet.DeploymentID
	Job        fleet.JobID
	Auto       bool `json:",omitempty"`
}

// Launch is a child of a periodic job that was launched. The child's id contains the time.
type Launch struct {
	Job, Child fleet.JobID
	Alone      bool          `json:",omitempty"` // the job prohibits overlap
	Beside     []fleet.JobID `json:",omitempty"` // other children that are not over
}

// Dispatch is the answer to a dispatch of a job. Requests with the same token are repetitions, and get the same
// child.
type Dispatch struct {
	Job, Child fleet.JobID
	Token      string
	Input      string `json:",omitempty"` // of Child, see DescribeInput
	Children   int    `json:",omitempty"` // number of the job's children with this token, after the entry
}

// DispatchCall is a dispatch of a job by a user: before the first call, and again when a hub has acknowledged it.
type DispatchCall struct {
	Job   fleet.JobID
	Token string
	Input string      // what the user gives, see DescribeInput
	Flaw  string      `json:",omitempty"` // why hubs have to refuse it; "": they do not
	Child fleet.JobID `json:",omitempty"` // by the acknowledgement; "": there is none yet
}

// GivenInput is what a task of a dispatched job finds when it starts.
type GivenInput struct {
	Edge  string
	Child fleet.JobID
	Input string // see DescribeInput
}

// DescribeInput describes the payload and the meta of a dispatch: equal ones have the same description.
func DescribeInput(payload []byte, meta map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		pairs = append(pairs, key+"="+meta[key])
	}
	return fmt.Sprintf("a payload of %d bytes (%08x), meta %q", len(payload), crc32.ChecksumIEEE(payload), pairs)
}

// Drain is the change that an entry makes to the drain of a node.
type Drain struct {
	Node       fleet.NodeID
	Deadline   time.Duration `json:",omitempty"` // from now on; 0: none
	KeepSystem bool          `json:",omitempty"` // allocations of system jobs stay
	Over       bool          `json:",omitempty"` // the drain ended, by an operator or by the drainer
	Emptied    bool          `json:",omitempty"` // the drainer ended the drain
	Deadlined  bool          `json:",omitempty"` // the drainer ended it because its deadline was over
}

// TagMeta is the key of a job's meta that carries the tag of a registration.
const TagMeta = "tag"

// JobChange is a registration or a deregistration (Stop) of a job.
type JobChange struct {
	Job  fleet.JobID
	Tag  string `json:",omitempty"` // of a registration
	Stop bool   `json:",omitempty"`
	// Version is the job's version after a registration.
	Version uint64 `json:",omitempty"`
}

// Recorded are the numbers of the rows that an entry added to an allocation's history, in the history's order.
type Recorded struct {
	Node  fleet.NodeID
	Alloc fleet.AllocID
	Rows  []fleet.Seq
	Full  bool `json:",omitempty"` // the history is at its bound, and may have dropped even some of these
}

// Opened is a session that was committed.
type Opened struct {
	Node    fleet.NodeID
	Session uint64
	Boot    fleet.BootID
	Hub     fleet.HubID
	Epoch   fleet.Epoch
	Status  fleet.NodeStatus // after it
	Head    fleet.Seq        // the newest row that its Hello announced
	Applied fleet.Seq        // the newest row that the hubs have applied
	Lost    string           `json:",omitempty"` // why its journal lacks rows; "": it does not
}

// Fenced is a session that was refused for good: another machine uses the identity of its node.
type Fenced struct {
	Node fleet.NodeID
	Code fleet.Code
}

// Moved is a node whose heartbeat deadline passed, with its new status.
type Moved struct {
	Node   fleet.NodeID
	Epoch  fleet.Epoch      // of the session whose deadline it was
	Newest fleet.Epoch      // of the node's newest session
	Status fleet.NodeStatus // after it
}

// Batch is the part of one node in an entry of journal rows, with the result of applying it.
type Batch struct {
	Node    fleet.NodeID
	Epoch   fleet.Epoch
	First   fleet.Seq
	Rows    []fleet.Transition
	Base    bool             `json:",omitempty"` // the edge has no older rows any more: First may follow a gap
	Code    fleet.Code       `json:",omitempty"` // why it was refused; "": it was applied
	Applied fleet.Seq        // the newest applied row of the node after it
	Status  fleet.NodeStatus // of the node after it
}

// Load is the sum of resources that a node's allocations occupy, counted from the allocations.
type Load struct {
	Node fleet.NodeID
	Name string
	Used fleet.Resources
	Free fleet.Resources
	// Clash is a port, core or device that two allocations have; "": there is none.
	Clash string `json:",omitempty"`
}

// Values of Process.What.
const (
	ProcessStart    = "start"
	ProcessStop     = "stop" // it was asked to end
	ProcessKill     = "kill"
	ProcessReboot   = "reboot"    // the machine went down; a start follows
	ProcessPowerCut = "power_cut" // as ProcessReboot, and data that was not synced is lost
)

// Process is a start or an end of a hub, of an edge's agent or of its machine.
type Process struct {
	Name string
	Edge bool         // it belongs to an edge; else to a hub
	What string       // ProcessStart, …
	Boot fleet.BootID `json:",omitempty"` // the machine's boot, of a start
}

// Values of Task.What.
const (
	TaskStarted  = "started"
	TaskExited   = "exited"   // it ended by itself
	TaskStopped  = "stopped"  // its agent ended it
	TaskVanished = "vanished" // its machine went down
)

// Task is a start or an end of a task's process, as the task or its driver reports it. It does not come from
// any record of the fleet.
type Task struct {
	Edge  string
	Alloc fleet.AllocID
	Task  string
	What  string // TaskStarted, …
	Exit  int    `json:",omitempty"` // exit code
	Fails bool   `json:",omitempty"` // it exited with a failure
	// Wall is the true time of a stop; zero: not known.
	Wall time.Time `json:",omitzero"`
}

// Refused is a message or a session that was refused.
type Refused struct {
	By     string       // the hub or edge that refused it
	From   string       // the edge, hub or client that sent it; "": only Node is known
	Node   fleet.NodeID `json:",omitempty"`
	Code   fleet.Code
	Reason string `json:",omitempty"`
}

// Dial is the beginning of a round in which an edge tries to connect to one of the hubs.
type Dial struct{ Edge string }

// Effect is an effect of a fault that can excuse what checkers see.
type Effect string

const (
	Severs    Effect = "severs"     // no message passes between an edge and the hubs, or between a hub and anybody, while it lasts
	Impairs   Effect = "impairs"    // messages are late, lost, doubled, or come from another address; or none passes for a while
	Halts     Effect = "halts"      // the target's process is killed or paused
	Reboots   Effect = "reboots"    // the target's machine goes down
	Damages   Effect = "damages"    // the target's files lose data that was written
	Chokes    Effect = "chokes"     // the target cannot write, or only slowly
	MovesTime Effect = "moves-time" // the target's wall clock is wrong from its beginning on
	Rewinds   Effect = "rewinds"    // the hubs are restored from an older copy of their data
	Clones    Effect = "clones"     // two machines use the target's identity
	Revokes   Effect = "revokes"    // the hubs expel the target for good; its machine comes back with nothing, as another node
	EndsTasks Effect = "ends-tasks" // tasks end or cannot start, and the agent is not the cause
)

// Fault is the beginning or the end of a fault. Each fault has both, even where it lasts no time.
type Fault struct {
	ID      int // unique in the run
	Kind    string
	Detail  string   `json:",omitempty"` // a variant of Kind, for people: "one way", "satellite"
	Targets []string `json:",omitempty"` // names of hubs and edges; empty: all of them
	Effects []Effect `json:",omitempty"`
	End     bool     `json:",omitempty"`
	// Hits is how often it had an effect. It is known at its end.
	Hits uint64 `json:",omitempty"`
}

// Values of Operation.Does.
const (
	OpRegister   = "register"
	OpRead       = "read"
	OpDeregister = "deregister"
	OpPurge      = "purge"
)

// Values of Operation.Outcome. An operation of unknown outcome may or may not take
// effect, at any time from its call on.
const (
	OutcomeOK       = "ok"
	OutcomeRefused  = "refused" // it certainly has no effect
	OutcomeConflict = "conflict"
	OutcomeNotFound = "not_found"
	OutcomeUnknown  = "unknown"
	OutcomeBegun    = "begun" // of the deletion of a variable or the release of a lock, which is reported once more when it has returned
)

// Operation is a request of a client to the cluster with its outcome. Callers pass it to Observe when it has
// returned (At is that time). Of reads only those in the API's default, consistent mode are allowed.
type Operation struct {
	Client  string
	Does    string
	Job     fleet.JobID
	Call    time.Duration
	Outcome string
	// Tag is the value of TagMeta that was written or read. Each registration has
	// another one.
	Tag string `json:",omitempty"`
	// Check is the job modify index that a registration demands where Enforces is
	// true; 0: no such job may exist.
	Check    fleet.Index `json:",omitempty"`
	Enforces bool        `json:",omitempty"`
	// Modify is the job modify index that a read or a change returned; 0: the answer
	// had none. Stopped says that the job that was read is stopped.
	Modify  fleet.Index `json:",omitempty"`
	Stopped bool        `json:",omitempty"`
}

// Request is a person's request that ends tasks or promotes canaries, made to an edge on site or to a hub.
type Request struct {
	Edge  string        `json:",omitempty"` // the edge on whose site it was made; "": it was made to a hub
	Alloc fleet.AllocID `json:",omitempty"` // "": all allocations of Edge
	What  string        // AskPromote, …, or "drain"
	Job   fleet.JobID   `json:",omitempty"` // for AskPromote and requests on site
	// Name and Version are the allocation's name and its job's version, for a request on site.
	Name    string `json:",omitempty"`
	Version uint64 `json:",omitempty"`
}

// Values of Request.What. A stop and a start on site are two requests each: one before the edge is asked, and one
// after it has journaled the action.
const (
	AskPromote    = "promote" // a person asks for the promotion of a job's canaries
	AskRestart    = "restart"
	AskStop       = "stop" // hold it until AskStart
	StopRecorded  = "stop recorded"
	AskStart      = "start"
	StartRecorded = "start recorded"
	EdgeRevoked   = "edge revoked" // a hub has acknowledged the revocation of the edge
	EdgeWiped     = "edge wiped"   // the machine of a revoked edge lost its identity, and will get another one
)

// Usage is a sample of the resources that a process, or a member of the fleet within one, uses.
type Usage struct {
	Who string // name of the process or member
	// Quiet says that nothing was going on when the sample was taken. Only such
	// samples are compared.
	Quiet      bool
	Goroutines int   `json:",omitempty"` // 0: not known; so are the other fields
	HeapBytes  int64 `json:",omitempty"`
	Files      int   `json:",omitempty"`
	DiskBytes  int64 `json:",omitempty"`
}
