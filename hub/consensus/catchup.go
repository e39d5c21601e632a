package consensus

import (
	"context"
	"sync"
)

// sharedCatchUp lets requests that wait at the same time share one call, so that unknown tokens cost the leader one call
// at a time, however many requests bring them.
type sharedCatchUp struct {
	turn chan struct{} // capacity 1; full while a call is made

	mu     sync.Mutex
	begun  uint64 // how many calls have begun
	shared uint64 // number of the newest call whose result others may use
	err    error  // of that call
}

func newSharedCatchUp() *sharedCatchUp {
	return &sharedCatchUp{turn: make(chan struct{}, 1)}
}

// waitForCall returns the result of a call that began after waitForCall did: call, or that of another request.
func (s *sharedCatchUp) waitForCall(ctx context.Context, call func(ctx context.Context) error) error {
	s.mu.Lock()
	before := s.begun
	s.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	s.mu.Lock()
	if s.shared > before {
		defer s.mu.Unlock()
		return s.err
	}
	s.begun++
	number := s.begun
	s.mu.Unlock()
	err := call(ctx)
	if ctx.Err() == nil { // otherwise the result may be that of this request alone
		s.mu.Lock()
		s.shared, s.err = number, err
		s.mu.Unlock()
	}
	return err
}
