package real

import (
	"context"
	"sync"
	"time"

	"skerry/chaos/engine"
)

// stalls measures how long the harness itself had to wait for a processor; its processes waited as
// well. After a wait of seconds a leader may change without a fault, and an exceeded time limit
// may be the machine's fault.
type stalls struct {
	mu      sync.Mutex
	longest time.Duration // guarded by mu: longest wait since takeLongestStall
}

const (
	stallLook = 50 * time.Millisecond
	// stallLong is the shortest time after which a follower gives up its leader.
	stallLong = time.Second
)

// watchForStalls measures the delay of a short timer, again and again, until ctx is done.
func (s *stalls) watchForStalls(ctx context.Context) {
	for {
		began := time.Now()
		if !engine.Pause(ctx, stallLook) {
			return
		}
		s.recordStall(time.Since(began) - stallLook)
	}
}

// recordStall records that the harness was late by that time.
func (s *stalls) recordStall(late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(s.longest, late)
}

// takeLongestStall returns the longest wait since the last call, and resets it.
func (s *stalls) takeLongestStall() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := s.longest
	s.longest = 0
	return longest.Round(time.Millisecond)
}

// stalled returns a warning for the verdict if the longest wait may have caused a violation; "": no.
func stalled(longest time.Duration) string {
	if longest < stallLong {
		return ""
	}
	return "the machine kept the harness itself waiting for up to " + longest.String() +
		": repeat it where nothing else runs, before you believe a bound in time"
}
