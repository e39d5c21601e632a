package engine

import (
	"slices"
	"sync"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
)

// Recorder has what is seen of a run judged, and writes it down. Its methods may be called
// from any goroutine.
type Recorder struct {
	Monitor *check.Monitor  // nil: nothing is judged
	History *history.Writer // nil: nothing is written
	// Clock is the time of the run.
	Clock func() time.Duration
	// Found is told of each violation, and must not block; nil: nobody is.
	Found func(check.Violation)

	mu         sync.Mutex
	violations []check.Violation // guarded by mu
	err        error             // guarded by mu: why the history is not whole
}

// Observe has an observation judged and written down, as of now.
func (r *Recorder) Observe(o check.Observation) {
	o.At = r.Clock()
	var found []check.Violation
	if r.Monitor != nil {
		found = r.Monitor.Observe(o)
	}
	r.Write(history.Record{Observation: o})
	r.Violate(found...)
}

// JudgeQuiet has a snapshot judged that was taken when nothing was left to do.
func (r *Recorder) JudgeQuiet(p check.FleetSnapshot) {
	found := r.Monitor.Quiet(r.Clock(), p)
	r.Write(history.Record{Picture: &history.FleetSnapshot{FleetSnapshot: p}})
	r.Violate(found...)
}

// JudgeEnd has judged what only the end of a run shows, by its last snapshot.
func (r *Recorder) JudgeEnd(last check.FleetSnapshot) {
	known := len(r.Monitor.Violations())
	all := r.Monitor.Finish(r.Clock(), last)
	r.Violate(all[min(known, len(all)):]...)
}

// Violate notes violations.
func (r *Recorder) Violate(found ...check.Violation) {
	for _, v := range found {
		if v.At == 0 {
			v.At = r.Clock()
		}
		r.mu.Lock()
		r.violations = append(r.violations, v)
		r.mu.Unlock()
		r.Write(history.Record{Violation: &v})
		if r.Found != nil {
			r.Found(v)
		}
	}
}

// Note writes down what people should know of a place; "": of the whole run.
func (r *Recorder) Note(where, text string) {
	r.Write(history.Record{Note: &history.Note{Where: where, Text: text}})
}

// Write writes a record of now.
func (r *Recorder) Write(rec history.Record) {
	if r.History == nil {
		return
	}
	rec.At = r.Clock()
	err := r.History.Write(rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// WriteVerdicts writes the monitor's verdicts.
func (r *Recorder) WriteVerdicts() {
	for _, v := range r.Monitor.Verdicts() {
		r.Write(history.Record{Verdict: &v})
	}
}

// Violations are all that were found.
func (r *Recorder) Violations() []check.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// Err is why the history is not whole.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
