package broker

import (
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// maxAttemptsRetryDelay is how long an evaluation that lost every race for capacity
// waits at most: there may be capacity all the time.
const maxAttemptsRetryDelay = 5 * time.Second

// blockOrEnqueue lets an evaluation wait for capacity, unless capacity appeared between
// the picture that its scheduler had and now. A job has one such evaluation: of
// two the newer stays.
func (q *queue) blockOrEnqueue(e *entry, v *state.View) {
	if hasCapacityFor(e.eval, v, schedulerIndex(e.eval)) {
		q.enqueueForJob(e)
		return
	}
	l := q.jobQueueOf(e)
	if other := l.blocked; other != nil && other != e {
		if compareLastChange(other.eval, e.eval) > 0 {
			q.supersedeEval(e, other)
			return
		}
		l.blocked = nil
		q.deadlines.cancelDeadline(other)
		q.supersedeEval(other, e)
	}
	l.blocked = e
	e.evalState = blocked
	if e.eval.TriggeredBy == fleet.TriggerMaxPlanAttempts {
		q.deadlines.setDeadline(e, time.Now().Add(maxAttemptsRetryDelay))
	}
}

// unblockEvals lets those go on for which capacity appeared after an entry.
func (q *queue) unblockEvals(v *state.View, after fleet.Index) {
	freed := false
	for range v.CapacitySince(after) {
		freed = true
		break
	}
	if !freed {
		return
	}
	for _, l := range q.jobQueues {
		if e := l.blocked; e != nil && hasCapacityFor(e.eval, v, max(after, schedulerIndex(e.eval))) {
			l.blocked = nil
			q.enqueueForJob(e)
		}
	}
}

// hasCapacityFor reports whether capacity appeared after an entry that an evaluation may
// use: on nodes of a class that it has not seen or found to be eligible, and on
// any where classes do not tell or where it only lost races.
func hasCapacityFor(e *fleet.Evaluation, v *state.View, after fleet.Index) bool {
	for class := range v.CapacitySince(after) {
		eligible, seen := e.ClassEligibility[class]
		if !seen || eligible || e.EscapedClass || e.TriggeredBy == fleet.TriggerMaxPlanAttempts {
			return true
		}
	}
	return false
}

// schedulerIndex is the entry up to which the evaluation's scheduler knew the state.
func schedulerIndex(e *fleet.Evaluation) fleet.Index {
	if e.SnapshotIndex == 0 {
		return e.ModifyIndex
	}
	return e.SnapshotIndex
}
