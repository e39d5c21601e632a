package broker

import (
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// retryAttempts is how long an evaluation that lost every race for capacity
// waits at most: there may be capacity all the time.
const retryAttempts = 5 * time.Second

// block lets an evaluation wait for capacity, unless capacity appeared between
// the picture that its scheduler had and now. A job has one such evaluation: of
// two the newer stays.
func (q *queue) block(e *entry, v *state.View) {
	if fits(e.eval, v, since(e.eval)) {
		q.enqueue(e)
		return
	}
	l := q.line(e)
	if other := l.blocked; other != nil && other != e {
		if byChange(other.eval, e.eval) > 0 {
			q.supersede(e, other)
			return
		}
		l.blocked = nil
		q.alarms.disarm(other)
		q.supersede(other, e)
	}
	l.blocked = e
	e.place = blocked
	if e.eval.TriggeredBy == fleet.TriggerMaxPlanAttempts {
		q.alarms.arm(e, time.Now().Add(retryAttempts))
	}
}

// unblock lets those go on for which capacity appeared after an entry.
func (q *queue) unblock(v *state.View, after fleet.Index) {
	freed := false
	for range v.CapacitySince(after) {
		freed = true
		break
	}
	if !freed {
		return
	}
	for _, l := range q.lines {
		if e := l.blocked; e != nil && fits(e.eval, v, max(after, since(e.eval))) {
			l.blocked = nil
			q.enqueue(e)
		}
	}
}

// fits reports whether capacity appeared after an entry that an evaluation may
// use: on nodes of a class that it has not seen or found to be eligible, and on
// any where classes do not tell or where it only lost races.
func fits(e *fleet.Evaluation, v *state.View, after fleet.Index) bool {
	for class := range v.CapacitySince(after) {
		eligible, seen := e.ClassEligibility[class]
		if !seen || eligible || e.EscapedClass || e.TriggeredBy == fleet.TriggerMaxPlanAttempts {
			return true
		}
	}
	return false
}

// since is the entry up to which the evaluation's scheduler knew the state.
func since(e *fleet.Evaluation) fleet.Index {
	if e.SnapshotIndex == 0 {
		return e.ModifyIndex
	}
	return e.SnapshotIndex
}
