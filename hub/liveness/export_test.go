package liveness

import "context"

// RecordForwarded records heartbeats that another hub forwards, as the call of that hub does.
func (l *Liveness) RecordForwarded(heartbeats []Heartbeat) error {
	_, err := l.recordForwarded(context.Background(), heartbeats)
	return err
}
