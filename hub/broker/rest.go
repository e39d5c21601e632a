package broker

import (
	"time"

	"skerry/fleet"
)

// Nodes that come back one after the other each ask for an evaluation of the same
// jobs. Of a large job each of them costs as much as the first: a fleet that comes
// back at once would have the schedulers do nothing else for as long as that takes,
// and take from the hubs what they need to let it back. So such a job rests between
// two of them, by what the last one took; what comes meanwhile is one evaluation.
const (
	restTimes = 8
	restMost  = 2 * time.Second
)

// restAfter is how long a job rests after an evaluation that took so long.
func restAfter(took time.Duration) time.Duration {
	return min(max(took, 0), restMost/restTimes) * restTimes
}

// patient reports whether an evaluation may wait for others like it: nobody asked for
// it, and nothing is missing where it is late.
func patient(e *entry) bool { return e.eval.TriggeredBy == fleet.TriggerReconnect }

// rest lets a line's next evaluation wait.
func (q *queue) rest(l *line, next *entry, d time.Duration) {
	l.active, next.place = next, resting
	q.alarms.arm(next, time.Now().Add(d))
}

// wake ends a line's rest: what came meanwhile is looked at together.
func (q *queue) wake(l *line) {
	rested := l.active
	q.alarms.disarm(rested)
	l.active = nil
	l.pending = append(l.pending, rested)
	q.promote(l)
}
