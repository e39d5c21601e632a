package history

import (
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// Record is one line of a history.
type Record struct {
	At    time.Duration // since the run's start
	Event Event
}

// Event is what happened: one of the types below, as a value.
type Event interface{ kind() Kind }

// Kind names a type of event in the file.
type Kind string

const (
	KindFault     Kind = "fault"
	KindFaultEnd  Kind = "fault_end"
	KindOperation Kind = "operation"
	KindEnrolled  Kind = "enrolled"
	KindNode      Kind = "node"
	KindLeader    Kind = "leader"
	KindAlloc     Kind = "alloc"
	KindSession   Kind = "session"
	KindJournal   Kind = "journal"
	KindProcess   Kind = "process"
	KindTask      Kind = "task"
	KindRefused   Kind = "refused"
	KindViolation Kind = "violation"
	KindVerdict   Kind = "verdict"
	KindSometimes Kind = "sometimes"
	KindNote      Kind = "note"
	KindEnd       Kind = "end"
)

// Fault begins a fault; a FaultEnd with its ID ends it.
type Fault struct {
	ID      int      `json:"id"` // unique in the run, from 1
	Fault   string   `json:"fault"`
	Targets []string `json:"targets"`          // hubs and edges by name
	Detail  string   `json:"detail,omitempty"` // "one way", "satellite", …
}

// FaultEnd ends a fault. Hits is how often it really did something: packets
// dropped, writes refused, processes killed. 0: it proved nothing.
type FaultEnd struct {
	ID   int    `json:"id"`
	Hits uint64 `json:"hits"`
}

// Operation is what a client asked of the cluster, recorded when it returned.
// The record's At is its return, or the end of the run if it never did.
type Operation struct {
	Client  string        `json:"client"`
	Does    string        `json:"does"` // OpRegister, OpRead, OpStop
	Job     fleet.JobID   `json:"job"`
	Value   string        `json:"value,omitempty"` // written, or read
	Call    time.Duration `json:"call"`
	Outcome string        `json:"outcome"` // OutcomeOK, OutcomeRefused, OutcomeUnknown
	Error   string        `json:"error,omitempty"`
}

// What clients do.
const (
	OpRegister = "register"
	OpRead     = "read"
	OpStop     = "stop"
)

// How an operation ended. Unknown may or may not have taken place, at any time
// from its call on.
const (
	OutcomeOK      = "ok"
	OutcomeRefused = "refused"
	OutcomeUnknown = "unknown"
)

// Enrolled tells which node an edge is.
type Enrolled struct {
	Edge   string       `json:"edge"`
	NodeID fleet.NodeID `json:"node_id"`
}

// Node is a node as a hub has it, recorded when that changed.
type Node struct {
	Hub     string           `json:"hub"`
	ID      fleet.NodeID     `json:"id"`
	Status  fleet.NodeStatus `json:"status"`
	Epoch   fleet.Epoch      `json:"epoch"`
	Applied fleet.Seq        `json:"applied"`
}

// Leader tells that a hub believes to lead, or no longer does.
type Leader struct {
	Hub   string `json:"hub"`
	Leads bool   `json:"leads"`
	Term  uint64 `json:"term,omitempty"`
}

// Alloc is an allocation as a hub has it, recorded when that changed.
type Alloc struct {
	Hub      string        `json:"hub"`
	ID       fleet.AllocID `json:"id"`
	Name     string        `json:"name"` // JOB.GROUP[INDEX]
	Job      fleet.JobID   `json:"job"`
	Node     fleet.NodeID  `json:"node"`
	Desired  string        `json:"desired"`
	Client   string        `json:"client"`
	Previous fleet.AllocID `json:"previous,omitempty"` // that it replaces
}

// Session is an edge's session as the edge sees it.
type Session struct {
	Edge  string      `json:"edge"`
	State string      `json:"state"` // SessionUp, SessionReplaying, SessionDown
	Hub   string      `json:"hub,omitempty"`
	Epoch fleet.Epoch `json:"epoch,omitempty"`
}

// Session states.
const (
	SessionDown      = "down"
	SessionReplaying = "replaying" // it has a session; its history is not in yet
	SessionUp        = "up"
)

// Journal is how far an edge's journal reaches, and how much of it the cluster
// has acknowledged.
type Journal struct {
	Edge  string    `json:"edge"`
	Head  fleet.Seq `json:"head"`
	Acked fleet.Seq `json:"acked"`
}

// Process is a daemon or a machine that starts or ends.
type Process struct {
	Name string       `json:"name"` // of the hub or edge
	What string       `json:"what"` // ProcessStart, ProcessKill, ProcessStop, ProcessReboot, ProcessPowerCut
	Boot fleet.BootID `json:"boot,omitempty"`
}

// What happens to processes.
const (
	ProcessStart    = "start"
	ProcessStop     = "stop" // asked to
	ProcessKill     = "kill"
	ProcessReboot   = "reboot"
	ProcessPowerCut = "power_cut"
)

// Task is the truth about a task: told by the task itself or its driver, not by
// any record of the fleet.
type Task struct {
	Edge  string        `json:"edge"`
	Alloc fleet.AllocID `json:"alloc"`
	Task  string        `json:"task"`
	Runs  bool          `json:"runs"` // started; false: ended
	Exit  int           `json:"exit,omitempty"`
}

// Refused is a message or a session that was refused.
type Refused struct {
	By     string     `json:"by"`
	From   string     `json:"from"`
	Code   fleet.Code `json:"code"`
	Reason string     `json:"reason,omitempty"`
}

// Violation is a broken promise. Where names the hub or edge that shows it, if
// one does.
type Violation struct {
	check.Violation
	Where string `json:"where,omitempty"`
}

// Verdict is what was concluded about one invariant at the end of a run.
type Verdict struct {
	Invariant  check.Invariant `json:"invariant"`
	Statement  string          `json:"statement"`
	Judged     uint64          `json:"judged"` // how many observations it looked at; 0: it says nothing
	Violations int             `json:"violations"`
}

// Sometimes is the final count of a branch or a fault that a run shall reach.
type Sometimes struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
	Least uint64 `json:"least"` // below it the run proves nothing; 0: only counted
}

// Note is a line for people.
type Note struct {
	Where string `json:"where,omitempty"`
	Text  string `json:"text"`
}

// End is the last record of a run that ended by itself.
type End struct {
	Outcome Outcome  `json:"outcome"`
	Reasons []string `json:"reasons,omitempty"` // why it is void, or what failed
	// Shortest is the shortest schedule found that still fails, as scenario text.
	Shortest string        `json:"shortest,omitempty"`
	Wall     time.Duration `json:"wall"`           // what the run cost
	Kept     []string      `json:"kept,omitempty"` // directories that were kept
}

// Outcome is what a run showed.
type Outcome string

const (
	Pass     Outcome = "pass"
	Violated Outcome = "violation"
	Void     Outcome = "void"   // too little happened: it proves nothing
	Broken   Outcome = "broken" // the harness failed, or the run never ended
)

func (Fault) kind() Kind     { return KindFault }
func (FaultEnd) kind() Kind  { return KindFaultEnd }
func (Operation) kind() Kind { return KindOperation }
func (Enrolled) kind() Kind  { return KindEnrolled }
func (Node) kind() Kind      { return KindNode }
func (Leader) kind() Kind    { return KindLeader }
func (Alloc) kind() Kind     { return KindAlloc }
func (Session) kind() Kind   { return KindSession }
func (Journal) kind() Kind   { return KindJournal }
func (Process) kind() Kind   { return KindProcess }
func (Task) kind() Kind      { return KindTask }
func (Refused) kind() Kind   { return KindRefused }
func (Violation) kind() Kind { return KindViolation }
func (Verdict) kind() Kind   { return KindVerdict }
func (Sometimes) kind() Kind { return KindSometimes }
func (Note) kind() Kind      { return KindNote }
func (End) kind() Kind       { return KindEnd }
