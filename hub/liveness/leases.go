package liveness

import (
	"time"

	"skerry/fleet"
	"skerry/hub/state"
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
	return time.Since(l.lastRenewal(hub)), true
}

// lastRenewal returns when a hub renewed its lease last, or else since when this hub leads. l.mu must be held.
func (l *Liveness) lastRenewal(hub fleet.HubID) time.Time {
	if renewed := l.leases[hub]; renewed.After(l.leadingSince) {
		return renewed
	}
	return l.leadingSince
}

// silentShare is the part of a lease after which a hub that has not renewed it is silent: a hub renews it six times.
const silentShare = 5

// leaseOfSilentHub returns when the lease of the hub ends that has the session of a missed deadline. ok is false if that
// hub is this one, is not silent, or has no lease any more. l.mu must be held.
func (l *Liveness) leaseOfSilentHub(v *state.View, d deadline, now time.Time) (until time.Time, ok bool) {
	n, known := v.Node(d.node)
	if !known || n.Epoch != d.epoch || n.Hub == l.cfg.Hub {
		return time.Time{}, false
	}
	last := l.lastRenewal(n.Hub)
	until = last.Add(l.cfg.SessionLease)
	return until, now.Sub(last) > l.cfg.SessionLease/silentShare && now.Before(until)
}
