package broker

import (
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// maxAttemptsRetryDelay is the longest wait of an evaluation that is blocked because its plans were
// rejected too often: there may be enough capacity all the time.
const maxAttemptsRetryDelay = 5 * time.Second

// blockOrEnqueue makes an evaluation blocked, or enqueues it if capacity was freed since its scheduler saw
// the state. A job has one blocked evaluation: of two the newer stays, the other is superseded.
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

// unblockEvals enqueues the blocked evaluations for which capacity was freed after an entry.
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

// hasCapacityFor reports whether capacity was freed after an entry that an evaluation may use: on nodes of
// a class that is eligible or that it has not seen. Any class counts if classes do not decide, or if its
// plans were only rejected.
func hasCapacityFor(e *fleet.Evaluation, v *state.View, after fleet.Index) bool {
	for class := range v.CapacitySince(after) {
		eligible, seen := e.ClassEligibility[class]
		if !seen || eligible || e.EscapedClass || e.TriggeredBy == fleet.TriggerMaxPlanAttempts {
			return true
		}
	}
	return false
}

// schedulerIndex returns the newest entry that the evaluation's scheduler had seen.
func schedulerIndex(e *fleet.Evaluation) fleet.Index {
	if e.SnapshotIndex == 0 {
		return e.ModifyIndex
	}
	return e.SnapshotIndex
}
