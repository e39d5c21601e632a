package liveness

import "context"

// RecordForwarded records heartbeats that another hub forwards, as the call of that hub does.
func (l *Liveness) RecordForwarded(heartbeats []Heartbeat) error {
	_, err := l.recordForwarded(context.Background(), heartbeats)
	return err
}

// HasDeadline reports whether a node has a deadline, or the queue tells of one.
func (l *Liveness) HasDeadline() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.deadlines.earliestDeadline()
	return ok
}
