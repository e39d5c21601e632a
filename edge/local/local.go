// Package local is the edge's HTTP API on a unix socket, DATA/local.sock (mode 0600, or 0660 with a group), with everything
// that an operator on site needs without a hub. The command line uses its Client.
//
// edge.Open makes the Server for an Agent. Run serves until its context ends, with one goroutine for
// each connection. It stores nothing: the Agent journals each action before it acts.
//
//	GET  /v1/status                       Status
//	GET  /v1/history?alloc=ID             []fleet.Transition
//	GET  /v1/services?namespace=&name=    []Service
//	GET  /v1/checks?alloc=ID              []Check
//	GET  /v1/logs?alloc=ID&task=&stream=&offset=&origin=&follow=   raw bytes
//	POST /v1/stop?alloc=ID&reason=&no_shutdown_delay=&may_return=         204
//	POST /v1/start?alloc=ID&reason=       Started
//	POST /v1/restart?alloc=ID&task=&reason=   204
//	POST /v1/exec?alloc=ID&task=&tty=&command=…   101, then frames (exec.go)
//	GET  /v1/store                        Store
//	PUT  /v1/store?source=&checksum=&name=    store.Entry; the body is the content
//	DELETE /v1/store?source=              Removed
//
// An alloc may be a unique prefix. An error is a fleet.Error as JSON, with a 4xx or 5xx status.
package local

import (
	"time"

	"skerry/fleet"
)

// Status is the status of the edge, as Agent.Status returns it.
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
	Started    time.Time     // of the agent, by the edge's wall clock
	Enrolled   bool          // it has a certificate
	Cert       Certificate
	Link       Link
	Journal    Journal
	Disk       Disk
	Key        MachineKey
	Allocs     []Alloc // by name, then id
}

// MachineKey says how the edge keeps the key that encrypts secrets on its disk.
type MachineKey struct {
	Place     string // "tpm", "systemd", "file", or "memory" while the kept key cannot be had
	Wanted    string `json:",omitempty"` // where it should be, if that is not Place
	LastError string `json:",omitempty"` // why it is not there
}

// Certificate is the edge's certificate, which it renews by itself.
type Certificate struct {
	NotAfter time.Time // zero: none yet
	RenewAt  time.Time // when the edge asks for another one
	// LastError is the error of the last attempt to renew it.
	LastError string `json:",omitempty"`
}

// Link is the status of the link to the hubs.
type Link struct {
	State     string        // "connected", "connecting", "waiting", "enrolling", "fenced"
	Hub       string        // address of the session, or of the last attempt
	Hubs      []string      // known addresses
	Session   uint64        // number of the session
	Status    string        // node status that a hub reported last
	Reason    string        // why the node has that status
	LastError string        // why the last attempt or session ended
	NextTry   time.Duration // until the next attempt; 0: not waiting
	Away      time.Duration // since the last answered heartbeat was sent, in machine time; 0: never
	Fenced    string        // why a hub refused this machine as a clone
	WentBack  string        // how the cluster fell behind its own acknowledgements
	// Bytes on the wire since the agent started, with headers.
	BytesSent, BytesReceived uint64
}

// Journal is the status of the journal.
type Journal struct {
	First, Last, Acknowledged fleet.Seq
	Unacknowledged            uint64      // rows that the cluster has not applied
	Bytes                     int64       // of rows
	Dropped                   uint64      // transitions that were counted and not stored, ever
	DesiredIndex              fleet.Index // of the newest delivery of a hub
	// Lost is the reason why rows that no hub has may be missing; "" if none are.
	Lost        string       `json:",omitempty"`
	Quarantined []Quarantine `json:",omitempty"`
}

// Disk is the disk of the data directory, in bytes; zero if not known.
type Disk struct {
	// Full says that the disk was full: the agent has freed some or all of its reserve, for starts and
	// for the journal.
	Full              bool
	Free              int64
	Reserve, Reserved int64 // size of the reserve now, and its size while the disk has space
	// NoNewAllocs says why no new allocation starts until there is space; "": they start.
	NoNewAllocs string `json:",omitempty"`
}

// Quarantine describes a damaged database that was set aside.
type Quarantine struct {
	Path       string
	Reason     string
	Found      time.Time
	Salvaged   int  // rows that were carried over
	Lost       int  // rows known to be lost
	EndUnknown bool // the number of the newest row is not known: more rows may be lost
}

// Alloc is the desired and the actual state of one allocation.
type Alloc struct {
	ID                fleet.AllocID
	Name              string
	JobID             fleet.JobID
	TaskGroup         string
	JobVersion        uint64
	Desired           string // fleet.DesiredRun or fleet.DesiredStop
	DesiredReason     string // why it must stop
	ClientStatus      string
	ClientDescription string
	// Note says why the allocation does not run, or still runs, against its desired state; "" if they agree.
	Note    string        `json:",omitempty"`
	StopsIn time.Duration `json:",omitempty"` // by stop_on_client_after, unless a hub answers before
	// BetweenLaunches says that this edge launches it periodically, and that no launch of it runs now.
	BetweenLaunches bool `json:",omitempty"`
	// Held says who stopped it on site, and why; nil if it is not held.
	Held    *fleet.Hold `json:",omitempty"`
	Tasks   map[string]fleet.TaskState
	LastSeq fleet.Seq // its newest row
	Unsent  bool      // the cluster has not acknowledged that row
	// Identities are the tokens that the edge has for its tasks, without the tokens themselves.
	Identities []Identity `json:",omitempty"`
	// Templates are the newest renderings of its tasks' templates and secret blocks, without their texts.
	Templates []fleet.KeptTemplate `json:",omitempty"`
	// Variables are those that its tasks may read and this edge has, without their items. The edge does not know when one was
	// created, and knows ModifyTime only from hubs that say it.
	Variables []fleet.VariableMeta `json:",omitempty"`
}

// Identity is what an edge knows of a task's token. A token that has expired stops nothing.
type Identity struct {
	Task    string
	Name    string
	Issued  time.Time  // by the clock of the hub that has signed it
	Expires *time.Time `json:",omitempty"` // nil: never
	// Offline says that the edge has signed it itself, because no hub was in reach.
	Offline bool `json:",omitempty"`
}

// StopRequest is a request to stop an allocation.
type StopRequest struct {
	Alloc  fleet.AllocID
	Reason string
	// NoShutdownDelay skips every shutdown_delay, also one that has begun.
	NoShutdownDelay bool
	// MayReturn ends the allocation for good, and the hubs replace it; otherwise it is held until Start.
	MayReturn bool
}

// Started is the result of Start: the name of the allocations that may start again.
type Started struct {
	Name    string
	Waiting int // allocations of the name that can start now
}

// LogRequest is a request for a task's output.
type LogRequest struct {
	Alloc  fleet.AllocID
	Task   string // "": the only task
	Stream string // "stdout" (the default) or "stderr"
	Offset int64  // bytes from Origin
	Origin string // "start" (the default) or "end"
	Follow bool
}

// Service is a registration of a service that the edge knows of.
type Service struct {
	fleet.ServiceRegistration
	Failing string `json:",omitempty"` // name of a failing check, or ""
	// Neighbour is the name of the node that has the service; "": this edge. The other fields are of such a service.
	Neighbour string `json:",omitempty"`
	// Critical says why the service does not answer this edge, and Since from when on, by the edge's wall clock; "": it
	// answers, or is not tried because hubs are in reach.
	Critical string     `json:",omitempty"`
	Since    *time.Time `json:",omitempty"`
	// Untried says that there is no link, and that this edge could not find out whether the service answers.
	Untried bool `json:",omitempty"`
	// CopyAge is how long ago a hub last said that the edge's copy is exact; 0: it says so now.
	CopyAge time.Duration `json:",omitempty"`
}

// Check is the newest result of a check of an allocation.
type Check struct {
	Alloc fleet.AllocID
	fleet.CheckResult
}
