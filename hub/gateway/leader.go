package gateway

import (
	"context"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// leaderCheck is how often a hub checks whether there is a leader.
const leaderCheck = 500 * time.Millisecond

// leadership records since when this hub has known no leader. All sessions read it.
type leadership struct {
	mu   sync.Mutex
	lost time.Time // when there was no leader any more; zero: there is one
}

// watchLeader polls led until ctx ends.
func (l *leadership) watchLeader(ctx context.Context, led func() bool) {
	tick := time.NewTicker(leaderCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			l.recordLeader(led(), now)
		}
	}
}

func (l *leadership) recordLeader(led bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case led && !l.lost.IsZero():
		l.lost = time.Time{}
	case !led && l.lost.IsZero():
		l.lost = now
	}
}

// leaderlessTime returns how long this hub has known no leader.
func (l *leadership) leaderlessTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost.IsZero() {
		return 0
	}
	return time.Since(l.lost)
}

func noLeader() syncproto.Refused {
	return syncproto.Refused{
		Code:    fleet.CodeUnavailable,
		Message: "this hub knows of no leader",
		Hint:    "another hub may",
	}
}
