package history

import (
	"time"

	"skerry/chaos/check"
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
	Format   int
	Name     string // of the scenario, or of how the faults were drawn
	Seed     uint64
	Clock    Clock
	Start    time.Time         // by the run's own clock
	Repeat   string            // the command that repeats it
	Versions map[string]string // of skerry, go, and the libraries that matter
	Hubs     []string
	Edges    []string
	Schedule string       // as the text of a scenario
	Limits   check.Limits // that the run's monitor judged by
}

// Record is one line of a history: an observation, or exactly one of the other
// pointers. At is the observation's, also where it is none.
type Record struct {
	check.Observation

	Picture   *FleetSnapshot   `json:",omitempty"`
	Violation *check.Violation `json:",omitempty"`
	Verdict   *check.Verdict   `json:",omitempty"`
	Sometimes *Sometimes       `json:",omitempty"`
	Note      *Note            `json:",omitempty"`
	End       *End             `json:",omitempty"`
}

// FleetSnapshot is a fleet that has nothing left to do, as the run's monitor was shown
// it.
type FleetSnapshot struct {
	check.FleetSnapshot
	Final bool // the run's last: Finish was called with it
}

// Sometimes is the final count of a branch that a run shall reach.
type Sometimes struct {
	Name  string
	Count uint64
	Least uint64 `json:",omitempty"` // below it the run proves nothing; 0: it is only counted
}

// Note is a line for people.
type Note struct {
	Where string `json:",omitempty"` // the hub, edge or job that it is about
	Text  string
}

// End is the last record of a run that ended by itself.
type End struct {
	Outcome Outcome
	Reasons []string `json:",omitempty"` // why it is void, or what failed
	// Shortest is the shortest schedule found that still fails, as the text of a scenario.
	Shortest string        `json:",omitempty"`
	Wall     time.Duration // what the run cost
	Kept     []string      `json:",omitempty"` // directories of it that were kept
}

// Outcome is what a run showed.
type Outcome string

// The outcomes of a run.
const (
	Pass     Outcome = "pass"
	Violated Outcome = "violation"
	Void     Outcome = "void"   // too little happened: it proves nothing
	Broken   Outcome = "broken" // the harness failed, or the run never ended
)

func (o Outcome) isKnownOutcome() bool { return o == Pass || o == Violated || o == Void || o == Broken }

// observationCount is how many of its observation's pointers are set.
func (r *Record) observationCount() int {
	return count(
		r.Applied != nil, r.Hub != nil, r.Edge != nil, r.Process != nil, r.Task != nil, r.Job != nil, r.Refused != nil,
		r.Dial != nil, r.Fault != nil, r.Operation != nil, r.Request != nil, r.Usage != nil, r.Snapshot != nil,
	)
}

// kindCount is how many of the record's pointers are set.
func (r *Record) kindCount() int {
	return r.observationCount() +
		count(r.Picture != nil, r.Violation != nil, r.Verdict != nil, r.Sometimes != nil, r.Note != nil, r.End != nil)
}

func count(set ...bool) int {
	n := 0
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}
