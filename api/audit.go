package api

import (
	"time"

	"skerry/fleet"
)

// AuditEntry is one line of a hub's audit: who asked for what, and what became of it. It has neither bodies nor
// parameters, as these may have secrets.
type AuditEntry struct {
	Seq    uint64 // numbers the entries of a hub from 1, without gaps
	Time   time.Time
	Hub    fleet.HubID
	Actor  AuditActor
	Source string // address of the client
	// Verb is the method of the request, EXEC for a command or action in a task, or LOST for Lost entries that a full disk
	// took. That of an action on an edge is in small letters, such as stop.
	Verb      string
	Object    string      `json:",omitempty"` // path of the request
	Namespace string      `json:",omitempty"` // that the request names
	Status    int         `json:",omitempty"` // of HTTP; 101: the command is handed to its node
	Code      fleet.Code  `json:",omitempty"` // of an error
	Index     fleet.Index `json:",omitempty"` // of the state, where the answer has one
	Lost      uint64      `json:",omitempty"`
	Reason    string      `json:",omitempty"` // that a person on site gave
	Edge      *AuditEdge  `json:",omitempty"` // of an action on an edge; nil: it was asked of the hub
	// Prev is the SHA-256 in hex of the line before, without its end; "": this is the first one.
	Prev string `json:",omitempty"`
}

// AuditActor is who asked. All is empty where a hub lets in everybody.
type AuditActor struct {
	Accessor string `json:",omitempty"` // of the token
	// Roles are the names of the token's roles when the request came, sorted.
	Roles       []string `json:",omitempty"`
	Certificate string   `json:",omitempty"` // common name of the client's verified certificate
	// Workload is the subject of the identity that a task has shown, and AllocID its allocation.
	Workload string        `json:",omitempty"`
	AllocID  fleet.AllocID `json:",omitempty"`
	User     string        `json:",omitempty"` // unix user on an edge
	UID      string        `json:",omitempty"` // that user's number
	Person   string        `json:",omitempty"` // name of the site code that was given on an edge
	SiteCode string        `json:",omitempty"` // id of that code
}

// AuditEdge says where and when somebody on site did something. Each hub writes all actions of edges into its own audit,
// in the order in which the cluster heard of them. The entry's Time is when the hub wrote it.
type AuditEdge struct {
	NodeID   fleet.NodeID
	NodeName string
	Number   uint64    // of all edges' actions, from 1
	Reported time.Time // when the cluster heard of it
	Time     time.Time // by the edge's wall clock
	Chain    string    // the audit of the edge, in which the action is the line Seq after the line with the hash Prev
	Seq      uint64
	Prev     string `json:",omitempty"`
}

// The verbs of entries that are no method of HTTP.
const (
	AuditExec = "EXEC"
	AuditLost = "LOST"
)

// MaxAuditLine bounds a line of the audit, in bytes: a path has at most as many as a request's header.
const MaxAuditLine = 2 << 20
