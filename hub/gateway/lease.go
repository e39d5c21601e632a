package gateway

import (
	"context"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// How long sessions outlive the loss of the quorum. Both are durations, each measured by
// one hub's own clock: clocks of hubs are never compared.
const (
	// SessionLease is how long a hub keeps its edges' sessions after its last request to the leader that was answered.
	// All hubs of a cluster must use the same.
	SessionLease = 30 * time.Second
	// FormerWait is the time without a renewal, as the leader measures it, after which all sessions of a hub are over.
	// Its second half lets their edges find another hub.
	FormerWait = 2 * SessionLease
)

// leaseRenewals is how many renewals fit into a lease.
const leaseRenewals = 6

// lease is this hub's right to keep sessions. Invariant: the leader knows of a renewal
// that is not older than the newest one that this hub counts, or it began to lead later.
// So a hub whose lease was not renewed for FormerWait has no session.
type lease struct {
	duration time.Duration
	renew    func(context.Context) error

	mu      sync.Mutex
	renewed time.Time     // when the newest renewal that succeeded was asked for
	ended   chan struct{} // closed while the lease is over
	over    bool
}

func newLease(lasts time.Duration, renew func(context.Context) error) *lease {
	return &lease{duration: lasts, renew: renew, ended: make(chan struct{})}
}

// renewUntilDone renews the lease until ctx ends.
func (l *lease) renewUntilDone(ctx context.Context) {
	every := l.duration / leaseRenewals
	l.recordRenewal(time.Now(), nil)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		asked := time.Now()
		renewing, cancel := context.WithTimeout(ctx, l.boundByLease(asked, every))
		err := l.renew(renewing)
		cancel()
		l.recordRenewal(asked, err)
		timer.Reset(l.boundByLease(time.Now(), every))
	}
}

// boundByLease returns d, or the rest of the lease if that is shorter.
func (l *lease) boundByLease(now time.Time, d time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := l.renewed.Add(l.duration).Sub(now); !l.over && left < d {
		return max(left, 0)
	}
	return d
}

// recordRenewal notes the outcome of a renewal that was asked for at a time, and opens or closes the
// lease.
func (l *lease) recordRenewal(asked time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.renewed = asked
	}
	over := time.Since(l.renewed) >= l.duration
	switch {
	case over && !l.over:
		close(l.ended)
	case !over && l.over:
		l.ended = make(chan struct{})
	}
	l.over = over
}

// leaseEndedChan is closed when the lease is over.
func (l *lease) leaseEndedChan() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// isOver reports whether the lease is over: the hub may neither keep nor begin sessions.
func (l *lease) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// leaseEnded is the refusal for the sessions of a hub whose lease is over.
func leaseEnded(lasts time.Duration) syncproto.Refused {
	return syncproto.Refused{
		Code:    fleet.CodeUnavailable,
		Message: "this hub has not reached the leader for " + lasts.String() + ", and keeps no sessions without it",
		Hint:    "another hub may take this edge",
	}
}
