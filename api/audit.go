package api

import (
	"crypto/sha256"
	"encoding/hex"
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
	// Verb is the method of the request, EXEC for a command in a task, or LOST for Lost entries that a full disk took.
	Verb      string
	Object    string      `json:",omitempty"` // path of the request
	Namespace string      `json:",omitempty"` // that the request names
	Status    int         `json:",omitempty"` // of HTTP
	Code      fleet.Code  `json:",omitempty"` // of an error
	Index     fleet.Index `json:",omitempty"` // of the state, where the answer has one
	Lost      uint64      `json:",omitempty"`
	// Prev is the AuditHash of the line before; "": this is the first one.
	Prev string `json:",omitempty"`
}

// AuditActor is who asked. All is empty where a hub lets in everybody.
type AuditActor struct {
	Accessor    string `json:",omitempty"` // of the token
	Certificate string `json:",omitempty"` // common name of the client's verified certificate
}

// AuditHash returns the hash of a line of the audit, without its end.
func AuditHash(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// The verbs of entries that are no method of HTTP.
const (
	AuditExec = "EXEC"
	AuditLost = "LOST"
)

// MaxAuditLine bounds a line of the audit, in bytes: a path has at most as many as a request's header.
const MaxAuditLine = 2 << 20
