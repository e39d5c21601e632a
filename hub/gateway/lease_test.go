package gateway

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// renewer is a leader that grants leases until it is cut off.
type renewer struct {
	slow   time.Duration // an answer takes as long
	silent bool          // cut off, it does not answer, in place of refusing

	mu    sync.Mutex
	cut   bool
	asked time.Time // of the last renewal that was granted
}

func (r *renewer) renewLease(ctx context.Context) error {
	at := time.Now()
	r.mu.Lock()
	cut := r.cut
	r.mu.Unlock()
	switch {
	case cut && r.silent:
		<-ctx.Done()
		return ctx.Err()
	case cut:
		return errors.New("no leader")
	}
	time.Sleep(r.slow)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = at
	return nil
}

func (r *renewer) setCut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// A hub that cannot renew its lease ends its sessions as long after it last asked, and not
// later for a leader that does not answer.
func TestLeaseEnds(t *testing.T) {
	for name, leader := range map[string]*renewer{
		"refused":                         {},
		"no answer":                       {silent: true},
		"no answer, and slow ones before": {silent: true, slow: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLease(SessionLease, leader.renewLease)
				ctx, cancel := context.WithCancel(t.Context())
				var work sync.WaitGroup
				work.Go(func() { l.renewUntilDone(ctx) })
				defer work.Wait()
				defer cancel()
				for range 2 { // it ends a second time as it did the first
					time.Sleep(10 * SessionLease)
					synctest.Wait()
					if l.isOver() || isClosed(l.leaseEndedChan()) {
						t.Fatal("over, though the leader grants it")
					}
					leader.setCut(true)
					<-l.leaseEndedChan()
					if kept := time.Since(leader.asked); kept != SessionLease {
						t.Errorf("it ended %s after the last renewal was asked for, want %s", kept, SessionLease)
					}
					leader.setCut(false)
				}
			})
		})
	}
}
