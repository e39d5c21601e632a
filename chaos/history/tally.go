package history

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Run sums up one history, for a campaign.
type Run struct {
	Name       string        `json:"name"`
	Seed       uint64        `json:"seed"`
	Clock      Clock         `json:"clock"`
	Repeat     string        `json:"repeat,omitempty"`
	Hubs       int           `json:"hubs"`
	Edges      int           `json:"edges"`
	Outcome    Outcome       `json:"outcome"`
	Reasons    []string      `json:"reasons,omitempty"`
	Lasted     time.Duration `json:"lasted"` // by the run's own clock
	Wall       time.Duration `json:"wall"`   // that it cost
	Records    uint64        `json:"records"`
	Operations uint64        `json:"operations"`        // by clients
	Refused    uint64        `json:"refused"`           // messages and sessions
	Faults     []FaultCount  `json:"faults"`            // by kind, in order
	Violations []Count       `json:"violations"`        // by invariant's statement, in order
	Sometimes  []Sometimes   `json:"sometimes"`         // by name, in order
	History    string        `json:"history,omitempty"` // file, beside the campaign's
	Report     string        `json:"report,omitempty"`  // file, beside the campaign's
}

// FaultCount is how often faults of a kind began and how often they hit.
type FaultCount struct {
	Fault string `json:"fault"`
	Times uint64 `json:"times"`
	Hits  uint64 `json:"hits"`
	// Missed is how many ended without a hit: they proved nothing.
	Missed uint64 `json:"missed"`
}

// Count is a number with a name.
type Count struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// Tally sums up a run, record by record.
type Tally struct {
	run        Run
	open       map[int]string // faults that have not ended, by id
	faults     map[string]FaultCount
	violations map[string]uint64
	ended      bool
}

// NewTally begins to sum up a run.
func NewTally(h Header) *Tally {
	return &Tally{
		run: Run{
			Name: h.Name, Seed: h.Seed, Clock: h.Clock, Repeat: h.Repeat,
			Hubs: len(h.Topology.Hubs), Edges: len(h.Topology.Edges),
		},
		open: map[int]string{}, faults: map[string]FaultCount{}, violations: map[string]uint64{},
	}
}

// Add counts a record.
func (t *Tally) Add(r Record) {
	t.run.Records++
	t.run.Lasted = max(t.run.Lasted, r.At)
	switch e := r.Event.(type) {
	case Fault:
		f := t.faults[e.Fault]
		f.Times++
		t.faults[e.Fault], t.open[e.ID] = f, e.Fault
	case FaultEnd:
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
	case Operation:
		t.run.Operations++
	case Refused:
		t.run.Refused++
	case Violation:
		t.violations[e.Violation.Invariant.Statement()]++
	case Sometimes:
		t.run.Sometimes = append(t.run.Sometimes, e)
	case End:
		t.ended, t.run.Outcome, t.run.Reasons, t.run.Wall = true, e.Outcome, e.Reasons, e.Wall
	}
}

// Run returns what was counted so far. A run that has not ended is broken.
func (t *Tally) Run() Run {
	run := t.run
	run.Faults, run.Violations = []FaultCount{}, []Count{}
	for kind, f := range t.faults {
		f.Fault = kind
		run.Faults = append(run.Faults, f)
	}
	for name, n := range t.violations {
		run.Violations = append(run.Violations, Count{name, n})
	}
	slices.SortFunc(run.Faults, func(a, b FaultCount) int { return cmp.Compare(a.Fault, b.Fault) })
	slices.SortFunc(run.Violations, func(a, b Count) int { return cmp.Compare(a.Name, b.Name) })
	run.Sometimes = slices.SortedFunc(slices.Values(t.run.Sometimes), func(a, b Sometimes) int { return cmp.Compare(a.Name, b.Name) })
	if !t.ended {
		run.Outcome, run.Reasons = Broken, []string{ErrCutShort.Error()}
	}
	return run
}

// Summarize reads a history to its end and sums it up. A history that was cut
// short is summed up as far as it goes.
func Summarize(r *Reader) (Run, error) {
	t := NewTally(r.Header())
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, ErrCutShort) {
			return t.Run(), nil
		}
		if err != nil {
			return Run{}, fmt.Errorf("sum up history of %s: %w", r.Header().Name, err)
		}
		t.Add(rec)
	}
}
