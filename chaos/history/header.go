package history

import (
	"time"

	"skerry/fleet"
)

// Format is the version of the format that Writer writes, and the only one that
// Reader reads.
const Format = 1

// Clock says what a run's times are.
type Clock string

const (
	Virtual Clock = "virtual" // a synctest bubble's
	Real    Clock = "real"    // monotonic, of the machine that ran it
)

// Header is a history's first line: what was run, and how to run it again.
type Header struct {
	Format   int               `json:"format"`
	Name     string            `json:"name"` // of the scenario, or of how the faults were drawn
	Seed     uint64            `json:"seed"`
	Clock    Clock             `json:"clock"`
	Start    time.Time         `json:"start"`
	Repeat   string            `json:"repeat"`   // the command that repeats it
	Versions map[string]string `json:"versions"` // of skerry, go, and the libraries that matter
	Topology Topology          `json:"topology"`
	Schedule string            `json:"schedule"` // the faults as scenario text
}

// Topology is who takes part.
type Topology struct {
	Hubs  []string      `json:"hubs"`
	Edges []EdgeMachine `json:"edges"`
	Jobs  []JobWanted   `json:"jobs"`
}

// EdgeMachine is an edge. Its node's id is known only once it has enrolled, and
// may be told later by an Enrolled record.
type EdgeMachine struct {
	Name   string       `json:"name"`
	NodeID fleet.NodeID `json:"node_id,omitempty"`
}

// JobWanted is a job that runs from the start.
type JobWanted struct {
	ID    fleet.JobID `json:"id"`
	Count int         `json:"count"`
}
