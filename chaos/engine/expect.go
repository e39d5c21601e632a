package engine

import (
	"fmt"
	"sync"
	"time"

	"skerry/chaos/schedule"
)

// Expectations hold a run against what its scenario expects. Its methods may be called from any
// goroutine.
type Expectations struct {
	mu      sync.Mutex
	judge   *schedule.ExpectationChecker
	inForce int           // faults
	calm    time.Duration // when the last fault was over
	quiet   time.Duration // after that all was settled; -1: never
	void    []string      // faults that never hit
}

// NewExpectations makes those of a schedule.
func NewExpectations(s schedule.Schedule) *Expectations {
	return &Expectations{judge: schedule.NewExpectationChecker(s), quiet: -1}
}

// Update has the checker be told of something.
func (x *Expectations) Update(f func(j *schedule.ExpectationChecker)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(x.judge)
}

// CountFaultBegin notes that a fault is in force.
func (x *Expectations) CountFaultBegin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inForce++
	x.quiet = -1
}

// AwaitsQuiet reports whether the fleet is watched for becoming quiet.
func (x *Expectations) AwaitsQuiet() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inForce == 0 && x.quiet < 0
}

// CountFaultEnd notes that a fault is over, and whether it hit.
func (x *Expectations) CountFaultEnd(f schedule.Fault, over time.Duration, hits uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inForce--
	x.calm = max(x.calm, over)
	if hits == 0 {
		x.void = append(x.void, f.String())
	}
}

// RecordSettled notes that all is quiet.
func (x *Expectations) RecordSettled(at time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.quiet < 0 {
		x.quiet = max(0, at-x.calm)
	}
}

// Unmet are the expectations that the run did not meet.
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
