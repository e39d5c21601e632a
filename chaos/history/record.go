package history

import (
	"time"

	"skerry/chaos/check"
)

// Format is the version of the format that Writer writes. Reader reads no other version.
const Format = 1

// Clock is the kind of clock that a run's times come from.
type Clock string

const (
	Virtual Clock = "virtual" // the clock of a synctest bubble
	Real    Clock = "real"    // the monotonic clock of the machine on which it ran
)

// Header is the first line of a history: the run's schedule, fleet and versions, and how to repeat it.
type Header struct {
	Format   int
	Name     string // name of the scenario, or of the kind of random schedule
	Seed     uint64
	Clock    Clock
	Start    time.Time         // by the run's own clock
	Repeat   string            // the command that runs it again
	Versions map[string]string // by component: skerry, go, important libraries
	Hubs     []string
	Edges    []string
	Schedule string       // as the text of a scenario
	Limits   check.Limits // limits of the run's monitor
}

// Record is one line of a history: exactly one of its pointers is set, those of the observation included. At is
// the time of the record, whatever its kind.
type Record struct {
	check.Observation

	Picture   *FleetSnapshot   `json:",omitempty"`
	Violation *check.Violation `json:",omitempty"`
	Verdict   *check.Verdict   `json:",omitempty"`
	Sometimes *Sometimes       `json:",omitempty"`
	Note      *Note            `json:",omitempty"`
	End       *End             `json:",omitempty"`
}

// FleetSnapshot is the state of a fleet with nothing left to do, as the run's monitor judged it.
type FleetSnapshot struct {
	check.FleetSnapshot
	Final bool // it is the run's last one, which Monitor.Finish got
}

// Sometimes is the final count of a branch that a run should reach.
type Sometimes struct {
	Name  string
	Count uint64
	Least uint64 `json:",omitempty"` // a run with a lower count is void; 0: no minimum
}

// Note is a remark about a run for people.
type Note struct {
	Where string `json:",omitempty"` // the hub, edge or job that it is about
	Text  string
}

// End is the last record of a run that came to its end.
type End struct {
	Outcome Outcome
	Reasons []string `json:",omitempty"` // why it is void, or what failed
	// Shortest is the shortest schedule found that still fails, as the text of a scenario.
	Shortest string        `json:",omitempty"`
	Wall     time.Duration // wall time of the run
	Kept     []string      `json:",omitempty"` // directories of the run that were not removed
}

// Outcome is the result of a run.
type Outcome string

// The outcomes of a run.
const (
	Pass     Outcome = "pass"
	Violated Outcome = "violation"
	Void     Outcome = "void"   // too little happened: it proves nothing
	Broken   Outcome = "broken" // the harness failed, or the run never ended
)

// isKnownOutcome reports whether the value is one of the outcomes.
func (o Outcome) isKnownOutcome() bool { return o == Pass || o == Violated || o == Void || o == Broken }

// observationCount returns how many pointers of the record's observation are set.
func (r *Record) observationCount() int {
	return countTrue(
		r.Applied != nil, r.Hub != nil, r.Edge != nil, r.Process != nil, r.Task != nil, r.Job != nil, r.Refused != nil,
		r.Dial != nil, r.Fault != nil, r.Operation != nil, r.Request != nil, r.Usage != nil, r.Snapshot != nil,
		r.Variable != nil, r.Held != nil, r.Identity != nil, r.Delivered != nil, r.Search != nil, r.Probe != nil, r.Answer != nil, r.Audit != nil, r.SiteCode != nil,
		r.Dispatch != nil, r.Given != nil,
	)
}

// kindCount returns how many of the record's pointers are set, those of the observation included.
func (r *Record) kindCount() int {
	return r.observationCount() +
		countTrue(r.Picture != nil, r.Violation != nil, r.Verdict != nil, r.Sometimes != nil, r.Note != nil, r.End != nil)
}

// countTrue returns how many of its arguments are true.
func countTrue(set ...bool) int {
	n := 0
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}
