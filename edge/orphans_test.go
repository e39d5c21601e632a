package edge

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
)

// Orphans are looked for every minute, and an allocation with driver state is none.
func TestOrphansAreRemovedRegularly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, tasksDir, "known"), 0o700); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int32
		e := &Edge{cfg: Config{DataDir: dir, RemoveOrphans: func(_ context.Context, known func(fleet.AllocID) bool) {
			calls.Add(1)
			if !known("known") || known("unknown") || known("../tasks/known") {
				t.Error("known and unknown allocations are mixed up")
			}
		}}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.removeOrphans(ctx)
		}()
		for _, step := range []struct {
			after time.Duration
			calls int32
		}{{59 * time.Second, 0}, {2 * time.Second, 1}, {58 * time.Second, 1}, {time.Second, 2}, {time.Minute, 3}} {
			time.Sleep(step.after)
			synctest.Wait()
			if n := calls.Load(); n != step.calls {
				t.Errorf("%d calls, want %d", n, step.calls)
			}
		}
		cancel()
		<-done
	})
}
