// Package local is the edge's own HTTP API on a unix socket, DATA/local.sock
// (mode 0600): everything that an operator on site needs without a hub. Client
// speaks it; the command line uses that.
//
// edge.Open makes the Server and gives it an Agent; Run serves until its context
// ends, one goroutine a connection. It persists nothing: what an operator does
// is journaled by the Agent before it is done.
//
//	GET  /v1/status                       Status
//	GET  /v1/history?alloc=ID             []fleet.Transition
//	GET  /v1/logs?alloc=ID&task=&stream=&offset=&origin=&follow=   raw bytes
//	POST /v1/stop?alloc=ID&reason=&no_shutdown_delay=&may_return=         204
//	POST /v1/start?alloc=ID&reason=       Started
//	POST /v1/restart?alloc=ID&task=&reason=   204
//
// An alloc may be abbreviated to what is unique. Failures are a fleet.Error as
// JSON, with a 4xx or 5xx status.
package local

import (
	"time"

	"skerry/fleet"
)

// Status is where the edge stands.
type Status struct {
	NodeID     fleet.NodeID
	Name       string
	Datacenter string
	Site       string
	TimeZone   string `json:",omitempty"` // "": UTC
	NodePool   string
	Version    string
	BootID     fleet.BootID
	Uptime     time.Duration // of the machine
	Started    time.Time     // of the agent, edge's clock
	Enrolled   bool          // it has a certificate
	Cert       Certificate
	Link       Link
	Journal    Journal
	Disk       Disk
	Allocs     []Alloc // by name, then id
}

// Certificate is the edge's own; it renews it by itself.
type Certificate struct {
	NotAfter time.Time // zero: there is none yet
	RenewAt  time.Time // from when on another one is asked for
	// LastError is why the last attempt to renew it failed.
	LastError string `json:",omitempty"`
}

// Link is where the link to the hubs stands.
type Link struct {
	State     string        // "connected", "connecting", "waiting", "enrolling", "fenced"
	Hub       string        // address of the session, or of the last attempt
	Hubs      []string      // addresses that are tried
	Session   uint64        // the edge's own count of sessions
	Status    string        // node status that the hub said last
	Reason    string        // why it stands there
	LastError string        // why the last attempt or session ended
	NextTry   time.Duration // until the next attempt; 0: none is waiting
	Away      time.Duration // since the last acknowledged beat, in machine time; 0: never
	Fenced    string        // why a hub refused this machine as a clone
	WentBack  string        // how the cluster fell behind what it had said before
	// Bytes on the wire since the agent started, headers counted.
	BytesSent, BytesReceived uint64
}

// Journal is what the journal holds.
type Journal struct {
	First, Last, Acknowledged fleet.Seq
	Unacknowledged            uint64
	Bytes                     int64 // of rows held
	Dropped                   uint64
	DesiredIndex              fleet.Index
	// Lost is why rows may be missing that no hub was told of yet.
	Lost        string       `json:",omitempty"`
	Quarantined []Quarantine `json:",omitempty"`
}

// Disk is the disk that the data directory lies on, in bytes; zero where it is not known.
type Disk struct {
	// Full says that there was no room: what the agent had reserved is given up, in part
	// or as a whole, for starts and for the journal.
	Full              bool
	Free              int64
	Reserve, Reserved int64 // what is reserved now, and what there is when the disk has room
}

// Quarantine is a damaged database that was set aside.
type Quarantine struct {
	Path       string
	Reason     string
	Found      time.Time
	Salvaged   int  // rows that were carried over
	Lost       int  // rows known to be lost
	EndUnknown bool // how far the rows went is not known: more may be lost
}

// Alloc is one allocation: what is wanted, and what is.
type Alloc struct {
	ID                fleet.AllocID
	Name              string
	JobID             fleet.JobID
	TaskGroup         string
	JobVersion        uint64
	Desired           string // fleet.DesiredRun or fleet.DesiredStop
	DesiredReason     string
	ClientStatus      string
	ClientDescription string
	// Note says what a person should know: that a body is missing, or that the
	// hub did not mention the allocation.
	Note    string        `json:",omitempty"`
	StopsIn time.Duration `json:",omitempty"` // by stop_on_client_after, if no hub answers before
	Tasks   map[string]fleet.TaskState
	LastSeq fleet.Seq // its newest journal row
	Unsent  bool      // the cluster has not acknowledged that row
}

// StopRequest asks for the end of an allocation.
type StopRequest struct {
	Alloc  fleet.AllocID
	Reason string
	// NoShutdownDelay leaves out every shutdown_delay, also one that has begun.
	NoShutdownDelay bool
	// MayReturn lets what the hubs send in its place start here; else nothing of its name
	// does until it is let run again.
	MayReturn bool
}

// Started is what was let run again.
type Started struct {
	Name    string
	Waiting int // allocations of that name that were only waiting for this
}

// LogRequest asks for a task's output.
type LogRequest struct {
	Alloc  fleet.AllocID
	Task   string // "": the only task
	Stream string // "stdout" (the default) or "stderr"
	Offset int64  // bytes from Origin
	Origin string // "start" (the default) or "end"
	Follow bool
}
