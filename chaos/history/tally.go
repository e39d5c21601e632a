package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
)

// Run is the summary of one history, for a campaign.
type Run struct {
	Name       string
	Seed       uint64
	Clock      Clock
	Repeat     string `json:",omitempty"`
	Hubs       int
	Edges      int
	Outcome    Outcome
	Reasons    []string      `json:",omitempty"`
	Lasted     time.Duration // length by the run's own clock
	Wall       time.Duration // wall time
	Records    uint64
	Operations uint64           // number of clients' operations
	Refused    uint64           // number of refused messages and sessions
	Faults     []FaultCount     // by kind, in order
	Violations []ViolationCount // by invariant, in order
	Sometimes  []Sometimes      // by name, in order
	History    string           `json:",omitempty"` // file, beside the campaign's
	Report     string           `json:",omitempty"` // file, beside the campaign's
}

// FaultCount counts the faults of one kind in a run: how many began (Times) and how often they had an effect
// (Hits).
type FaultCount struct {
	Fault string
	Times uint64
	Hits  uint64
	// Missed is the number of faults that ended without a hit.
	Missed uint64
}

// ViolationCount is the number of violations of one invariant.
type ViolationCount struct {
	Invariant check.Invariant
	Count     uint64
}

// Tally counts the records of a run, one by one, for its summary.
type Tally struct {
	run    Run
	open   map[int]string // faults that have not ended, by id
	faults map[string]FaultCount
	broken map[check.Invariant]uint64 // violations
	ended  bool
}

// NewTally returns a Tally of a run without records.
func NewTally(h Header) *Tally {
	return &Tally{
		run: Run{
			Name: h.Name, Seed: h.Seed, Clock: h.Clock, Repeat: h.Repeat,
			Hubs: len(h.Hubs), Edges: len(h.Edges),
		},
		open: map[int]string{}, faults: map[string]FaultCount{}, broken: map[check.Invariant]uint64{},
	}
}

// Add counts a record, and takes the outcome from an End.
func (t *Tally) Add(r Record) {
	t.run.Records++
	t.run.Lasted = max(t.run.Lasted, r.At)
	switch {
	case r.Fault != nil:
		t.countFault(r.Fault)
	case r.Operation != nil:
		t.run.Operations++
	case r.Refused != nil:
		t.run.Refused++
	case r.Violation != nil:
		t.broken[r.Violation.Invariant]++
	case r.Verdict != nil: // counts also those violations that were not kept
		t.broken[r.Verdict.Invariant] = max(t.broken[r.Verdict.Invariant], r.Verdict.Broken)
	case r.Sometimes != nil:
		t.run.Sometimes = append(t.run.Sometimes, *r.Sometimes)
	case r.End != nil:
		t.ended, t.run.Outcome, t.run.Reasons, t.run.Wall = true, r.End.Outcome, r.End.Reasons, r.End.Wall
	}
}

// countFault counts the beginning of a fault, or the hits at its end. An end without a beginning is ignored.
func (t *Tally) countFault(e *check.Fault) {
	if !e.End {
		f := t.faults[e.Kind]
		f.Times++
		t.faults[e.Kind], t.open[e.ID] = f, e.Kind
		return
	}
	kind, known := t.open[e.ID]
	if !known {
		return
	}
	delete(t.open, e.ID)
	f := t.faults[kind]
	f.Hits += e.Hits
	if e.Hits == 0 {
		f.Missed++
	}
	t.faults[kind] = f
}

// Run returns the summary of the records so far. Its outcome is Broken while there is no End.
func (t *Tally) Run() Run {
	run := t.run
	run.Faults, run.Violations = []FaultCount{}, []ViolationCount{}
	for kind, f := range t.faults {
		f.Fault = kind
		run.Faults = append(run.Faults, f)
	}
	for _, i := range slices.Sorted(maps.Keys(t.broken)) {
		if t.broken[i] > 0 {
			run.Violations = append(run.Violations, ViolationCount{i, t.broken[i]})
		}
	}
	slices.SortFunc(run.Faults, func(a, b FaultCount) int { return cmp.Compare(a.Fault, b.Fault) })
	run.Sometimes = slices.SortedFunc(slices.Values(t.run.Sometimes), func(a, b Sometimes) int { return cmp.Compare(a.Name, b.Name) })
	if !t.ended {
		run.Outcome, run.Reasons = Broken, []string{ErrCutShort.Error()}
	}
	return run
}
