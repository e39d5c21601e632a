package consensus

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Requests that come while a call is made share the next one, and no request gets the result of a call that began before it.
func TestCatchUpsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		s := newSharedCatchUp()
		call := func(ctx context.Context) error {
			n := calls.Add(1)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
			if n == 2 {
				return errors.New("no leader")
			}
			return nil
		}
		results := make(chan error, 100)
		ask := func(ctx context.Context, n int) {
			for range n {
				go func() { results <- s.waitForCall(ctx, call) }()
			}
			synctest.Wait()
		}
		want := func(when string, n int, failed bool, total int64) {
			t.Helper()
			for range n {
				if err := <-results; (err != nil) != failed {
					t.Errorf("%s: %v", when, err)
				}
			}
			synctest.Wait() // for the call that the next one of those who wait makes
			if calls.Load() != total {
				t.Errorf("%s: %d calls, want %d", when, calls.Load(), total)
			}
		}
		ask(t.Context(), 1)
		ask(t.Context(), 50)           // the call has begun before them
		want("the first", 1, false, 2) // the second has begun
		want("those that share the second call, which fails", 50, true, 2)

		ctx, cancel := context.WithCancel(t.Context())
		ask(ctx, 1)
		ask(t.Context(), 2)
		cancel()
		want("one that went away", 1, true, 4) // one of those behind it has begun
		want("those that waited behind it", 2, false, 4)
	})
}
