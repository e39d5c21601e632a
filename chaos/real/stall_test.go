package real_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/real"
)

// TestStallsAreSaid: nobody waits for a processor in virtual time, so that there are no stalls but those of the test.
func TestStallsAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s real.Stalls
		ctx, cancel := context.WithCancel(t.Context())
		go s.Watch(ctx)
		time.Sleep(time.Minute)
		if late := s.Take(); late != 0 {
			t.Errorf("a stall of %v in virtual time", late)
		}
		s.Saw(300 * time.Millisecond)
		s.Saw(2 * time.Second)
		s.Saw(time.Second)
		late := s.Take()
		if again := s.Take(); late != 2*time.Second || again != 0 {
			t.Errorf("stalls: %v, then %v", late, again)
		}
		if real.Stalled(late) == "" || real.Stalled(300*time.Millisecond) != "" {
			t.Errorf("said: %q, and %q", real.Stalled(late), real.Stalled(300*time.Millisecond))
		}
		cancel()
		synctest.Wait()
	})
}
