package engine

import (
	"slices"
	"sync"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
)

// Recorder passes what is observed in a run to a Monitor, and writes it to a history. Its methods may be called
// from any goroutine. Its exported fields are set before.
type Recorder struct {
	Monitor *check.Monitor  // nil: nothing is judged
	History *history.Writer // nil: nothing is written
	// Clock returns the time since the run's start.
	Clock func() time.Duration
	// Found is called with each violation, and must not block; it may be nil.
	Found func(check.Violation)

	// order is held while something is judged and written, so that who judges the history gets the same in the same order.
	order sync.Mutex
	last  time.Duration // guarded by order: of the newest record

	mu         sync.Mutex
	violations []check.Violation // guarded by mu
	err        error             // guarded by mu: the first failure to write the history
}

// Observe judges an observation and writes it, with the present time. It also records the violations that it
// shows.
func (r *Recorder) Observe(o check.Observation) {
	r.judgeAndWrite(history.Record{Observation: o}, func(at time.Duration) []check.Violation {
		if r.Monitor == nil {
			return nil
		}
		o.At = at
		return r.Monitor.Observe(o)
	})
}

// JudgeQuiet judges and writes a snapshot of a fleet that has nothing left to do, in the middle of a run.
// Monitor must not be nil.
func (r *Recorder) JudgeQuiet(p check.FleetSnapshot) {
	r.judgeAndWrite(history.Record{Picture: &history.FleetSnapshot{FleetSnapshot: p}}, func(at time.Duration) []check.Violation {
		return r.Monitor.Quiet(at, p)
	})
}

// JudgeEnd finishes the Monitor with the run's last snapshot (zero: none), writes that, and records the violations that
// are new. Monitor must not be nil.
func (r *Recorder) JudgeEnd(last check.FleetSnapshot) {
	r.judgeAndWrite(history.Record{Picture: &history.FleetSnapshot{FleetSnapshot: last, Final: true}}, func(at time.Duration) []check.Violation {
		known := len(r.Monitor.Violations())
		all := r.Monitor.Finish(at, last)
		return all[min(known, len(all)):]
	})
}

// judgeAndWrite has something judged, writes it with the time at which it was judged, and records the violations that it shows before
// anything else is judged: whoever judges the history finds them in the same order.
func (r *Recorder) judgeAndWrite(rec history.Record, judge func(at time.Duration) []check.Violation) {
	r.order.Lock()
	r.last = max(r.last, r.Clock())
	found := slices.Clone(judge(r.last)) // keepLocked changes it
	r.writeLocked(rec)
	r.keepLocked(found)
	r.order.Unlock()
	r.callFound(found)
}

// Violate records violations: it keeps and writes them, and calls Found. A violation without a time gets the
// present one.
func (r *Recorder) Violate(found ...check.Violation) {
	if len(found) == 0 {
		return
	}
	found = slices.Clone(found)
	r.order.Lock()
	r.last = max(r.last, r.Clock())
	r.keepLocked(found)
	r.order.Unlock()
	r.callFound(found)
}

// keepLocked keeps violations and writes them, with the time last for those without one. The caller holds order.
func (r *Recorder) keepLocked(found []check.Violation) {
	for i := range found {
		if found[i].At == 0 {
			found[i].At = r.last
		}
		v := found[i]
		r.mu.Lock()
		r.violations = append(r.violations, v)
		r.mu.Unlock()
		r.writeLocked(history.Record{Violation: &v})
	}
}

// callFound calls Found with each violation.
func (r *Recorder) callFound(found []check.Violation) {
	for i := 0; i < len(found) && r.Found != nil; i++ {
		r.Found(found[i])
	}
}

// Note writes a remark for people about a hub, edge or job; where "": about the whole run.
func (r *Recorder) Note(where, text string) {
	r.Write(history.Record{Note: &history.Note{Where: where, Text: text}})
}

// Write writes a record with the present time, where there is a history. Err returns a failure.
func (r *Recorder) Write(rec history.Record) {
	r.order.Lock()
	defer r.order.Unlock()
	r.last = max(r.last, r.Clock())
	r.writeLocked(rec)
}

// writeLocked writes a record with the time last. The caller holds order.
func (r *Recorder) writeLocked(rec history.Record) {
	if r.History == nil {
		return
	}
	rec.At = r.last
	err := r.History.Write(rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// WriteVerdicts writes the Monitor's verdict on each invariant. Monitor must not be nil.
func (r *Recorder) WriteVerdicts() {
	for _, v := range r.Monitor.Verdicts() {
		r.Write(history.Record{Verdict: &v})
	}
}

// Violations returns the violations that were recorded so far.
func (r *Recorder) Violations() []check.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// Err returns the first failure to write the history; nil: it is complete.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
