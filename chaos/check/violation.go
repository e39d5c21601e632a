package check

import (
	"fmt"
	"strings"
	"time"
)

// Violation is a broken promise, with what shows it.
type Violation struct {
	Invariant Invariant
	// At is when it was seen, from the run's start by the run's own clock; 0: it is
	// judged from a snapshot.
	At    time.Duration `json:",omitzero"`
	Where string        `json:",omitempty"` // the hub, edge or job that shows it
	// Message says what, on one line.
	Message string
	// Evidence are lines that show it, in order.
	Evidence []string `json:",omitempty"`
}

// String returns the violation in one line.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "invariant %d (%s)", int(v.Invariant), v.Invariant.Slug())
	if v.At > 0 {
		fmt.Fprintf(&b, " at %s", v.At.Round(time.Millisecond))
	}
	if v.Where != "" {
		fmt.Fprintf(&b, ", %s", v.Where)
	}
	return b.String() + ": " + v.Message
}

// maxEvidence bounds what one violation carries, in lines.
const maxEvidence = 40
