package real

import (
	"context"
	"sync"
	"time"

	"skerry/chaos/engine"
)

// stalls knows for how long the harness itself had to wait for a processor: what it runs
// waited as well. Where that is seconds, a leader is lost with nothing broken, and a bound
// in time says something of the machine as well.
type stalls struct {
	mu      sync.Mutex
	longest time.Duration // guarded by mu: since the last take
}

const (
	stallLook = 50 * time.Millisecond
	// stallLong is what a follower of a campaign's hubs waits for its leader at least.
	stallLong = time.Second
)

// watchForStalls looks until ctx is over.
func (s *stalls) watchForStalls(ctx context.Context) {
	for {
		began := time.Now()
		if !engine.Pause(ctx, stallLook) {
			return
		}
		s.recordStall(time.Since(began) - stallLook)
	}
}

func (s *stalls) recordStall(late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(s.longest, late)
}

// takeLongestStall returns the longest stall since the last call.
func (s *stalls) takeLongestStall() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := s.longest
	s.longest = 0
	return longest.Round(time.Millisecond)
}

// stalled says what a stall means for a verdict; "" where it means nothing.
func stalled(longest time.Duration) string {
	if longest < stallLong {
		return ""
	}
	return "the machine kept the harness itself waiting for up to " + longest.String() +
		": repeat it where nothing else runs, before you believe a bound in time"
}
