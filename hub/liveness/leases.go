package liveness

import (
	"time"

	"skerry/fleet"
)

// RenewLease records that a hub renews its lease on the sessions of its edges. It does nothing if this hub
// does not lead. It must be called before the hub gets its answer.
func (l *Liveness) RenewLease(hub fleet.HubID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading {
		l.leases[hub] = time.Now()
	}
}

// HubSilence returns for how long a hub has surely not renewed its lease; ok is false if this hub does not
// lead. It is at most the time since this hub leads, because it does not know which leases earlier leaders
// granted.
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
