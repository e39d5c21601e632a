package liveness

import (
	"time"

	"skerry/fleet"
)

// RenewLease notes that a hub asked this one, which leads, to renew its lease on the
// sessions that it terminates. It must be called before the hub is answered.
func (l *Liveness) RenewLease(hub fleet.HubID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading {
		l.leases[hub] = time.Now()
	}
}

// HubSilence is for how long a hub has surely not renewed its lease; ok is false where
// this hub does not lead. What earlier leaders granted is not known here, so silence
// begins with the leadership at the earliest.
func (l *Liveness) HubSilence(hub fleet.HubID) (silence time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading {
		return 0, false
	}
	last := l.leadingSince
	if renewed := l.leases[hub]; renewed.After(last) {
		last = renewed
	}
	return time.Since(last), true
}
