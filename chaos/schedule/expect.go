package schedule

import (
	"time"

	"skerry/fleet"
)

// Subject is the thing that an expectation is about. The set is closed.
type Subject string

const (
	ExpectJob       Subject = "job"       // Count allocations of Job have the client status State
	ExpectAlloc     Subject = "alloc"     // the allocation Name (JOB.GROUP[INDEX]) has the state State
	ExpectNode      Subject = "node"      // node Name has the status State
	ExpectEdge      Subject = "edge"      // Count tasks (of Job, if set) run on the machine of edge Name
	ExpectReplaced  Subject = "replaced"  // Count allocations (of Job, if set) were replaced by one of the same version
	ExpectRestarted Subject = "restarted" // tasks (of Job, if set) were started again Count times
	ExpectRefused   Subject = "refused"   // a session or message was refused with the code State
	ExpectQuiet     Subject = "quiet"     // the fleet is quiet within Within after the last fault
	ExpectVoid      Subject = "void"      // with Never: every fault had an effect
)

// An allocation with a client status that is not terminal (pending, running, unknown) counts
// only if its desired status is not terminal either. With the others it always counts.

// States of an allocation in expectations, beside the client statuses.
const (
	AllocHeld     = "held"     // somebody on site stopped it, and the hubs know that and still want it
	AllocKept     = "kept"     // the first running allocation of that name is the only one that runs
	AllocReplaced = "replaced" // exactly one allocation of that name runs, and it is not the first
	AllocStopped  = "stopped"  // no allocation of that name runs
)

// When is the time at which an expectation has to hold.
type When string

const (
	AtEnd  When = ""      // after the settling
	At     When = "at"    // at Time
	By     When = "by"    // at some time up to Time
	Always When = "from"  // from Time until Until
	Never  When = "never" // at no time
)

// Compare is the comparison of the observed count with Count.
type Compare string

// The comparisons.
const (
	Exactly Compare = ""
	AtLeast Compare = "at least"
	AtMost  Compare = "at most"
)

// Expectation is a condition that a run has to meet, about one subject.
type Expectation struct {
	Subject Subject       `yaml:"about"`
	Name    string        `yaml:"name,omitempty"` // the allocation, node or edge
	Job     fleet.JobID   `yaml:"job,omitempty"`  // the job; "": all, where the subject allows it
	State   string        `yaml:"state,omitempty"`
	Compare Compare       `yaml:"compare,omitempty"`
	Count   int           `yaml:"count,omitempty"`
	Within  time.Duration `yaml:"within,omitempty"` // ExpectQuiet: the limit
	When    When          `yaml:"when,omitempty"`
	Time    time.Duration `yaml:"time,omitempty"`
	Until   time.Duration `yaml:"until,omitempty"` // Always: the end
}
