package schedule

import (
	"time"

	"skerry/fleet"
)

// Subject is what an expectation is about. The set is closed.
type Subject string

const (
	ExpectJob       Subject = "job"       // Count allocations of Job have the client status State
	ExpectAlloc     Subject = "alloc"     // the allocation Name (JOB.GROUP[INDEX]) is as State says
	ExpectNode      Subject = "node"      // node Name has the status State
	ExpectEdge      Subject = "edge"      // on the machine of edge Name run Count tasks (of Job, where given)
	ExpectReplaced  Subject = "replaced"  // Count replacements were made (for Job, where given)
	ExpectRestarted Subject = "restarted" // Count times a task that had run was started again (of Job, where given)
	ExpectRefused   Subject = "refused"   // a session or message was refused with the code State
	ExpectQuiet     Subject = "quiet"     // all is settled within Within after the last fault
	ExpectVoid      Subject = "void"      // never: every fault has really hit
)

// Of client statuses that are no end (pending, running, unknown) an allocation counts
// only if the hubs still want it; of the others all on record do.

// States of an allocation that an expectation can name, beside the client statuses.
const (
	AllocKept     = "kept"     // the allocation that first had the name still runs under it
	AllocReplaced = "replaced" // another one runs under the name
	AllocStopped  = "stopped"  // none runs under the name
)

// When says when an expectation has to hold.
type When string

const (
	AtEnd  When = ""      // after the settling
	At     When = "at"    // at Time
	By     When = "by"    // at some time up to Time
	Always When = "from"  // from Time until Until
	Never  When = "never" // at no time
)

// Compare says how Count is meant.
type Compare string

// How a count is compared.
const (
	Exactly Compare = ""
	AtLeast Compare = "at least"
	AtMost  Compare = "at most"
)

// Expectation is what has to hold of one subject.
type Expectation struct {
	Subject Subject       `yaml:"about"`
	Name    string        `yaml:"name,omitempty"` // of an allocation, node or edge
	Job     fleet.JobID   `yaml:"job,omitempty"`  // of a job
	State   string        `yaml:"state,omitempty"`
	Compare Compare       `yaml:"compare,omitempty"`
	Count   int           `yaml:"count,omitempty"`
	Within  time.Duration `yaml:"within,omitempty"` // of quiet
	When    When          `yaml:"when,omitempty"`
	Time    time.Duration `yaml:"time,omitempty"`
	Until   time.Duration `yaml:"until,omitempty"` // of Always
}
