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
