package engine

import (
	"fmt"
	"sync"
	"time"

	"skerry/chaos/schedule"
)

// Expectations compare a run with what its scenario expects. The methods may be called from any goroutine.
type Expectations struct {
	mu      sync.Mutex
	judge   *schedule.ExpectationChecker
	inForce int           // number of active faults
	calm    time.Duration // when the last fault ended
	quiet   time.Duration // from calm until all was settled; -1: not yet
	void    []string      // faults that never hit
}

// NewExpectations returns the expectations of a schedule for a run that begins.
func NewExpectations(s schedule.Schedule) *Expectations {
	return &Expectations{judge: schedule.NewExpectationChecker(s), quiet: -1}
}

// Update calls f with the expectation checker, under the lock of x.
func (x *Expectations) Update(f func(j *schedule.ExpectationChecker)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(x.judge)
}

// CountFaultBegin records that a fault has begun. The fleet then has to settle again.
func (x *Expectations) CountFaultBegin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inForce++
	x.quiet = -1
}

// AwaitsQuiet reports whether no fault is active and the fleet has not settled since the last one.
func (x *Expectations) AwaitsQuiet() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inForce == 0 && x.quiet < 0
}

// CountFaultEnd records that a fault ended at the time over, with its number of hits; 0: it never hit.
func (x *Expectations) CountFaultEnd(f schedule.Fault, over time.Duration, hits uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inForce--
	x.calm = max(x.calm, over)
	if hits == 0 {
		x.void = append(x.void, f.String())
	}
}

// RecordSettled records that the fleet was settled at a time. Only the first call after a fault counts.
func (x *Expectations) RecordSettled(at time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.quiet < 0 {
		x.quiet = max(0, at-x.calm)
	}
}

// Unmet returns the expectations that the run has not met so far, each with the reason.
func (x *Expectations) Unmet() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []string
	for _, v := range x.judge.Verdicts(schedule.RunOutcome{Quiet: x.quiet, Void: x.void}) {
		if !v.Met {
			out = append(out, fmt.Sprintf("%s: %s", v.Expectation, v.Why))
		}
	}
	return out
}
