package virtual

import (
	"skerry/chaos/engine"

	"context"
	"runtime"
	"runtime/metrics"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// collectEvery is the default interval of checks whether the heap has to be collected, at
	// times when no other timer fires.
	collectEvery = 500*time.Millisecond + 3*time.Microsecond + 1
	// collections is the maximum number of such checks in a run.
	collections = 1_000_000
	// collectAbove is the size of the heap above which it is collected, in bytes.
	collectAbove = 384 << 20
)

// collectAtRest starts a goroutine that collects garbage while all other goroutines sleep, until
// stop is called. If the runtime decided, it would collect at another moment in each run, and so
// change the order of events.
func collectAtRest(ctx context.Context, every time.Duration) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error {
		heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for engine.Pause(ctx, every) {
			if metrics.Read(heap); heap[0].Value.Uint64() > collectAbove {
				runtime.GC()
			}
		}
		return nil
	})
	return func() error { cancel(); return g.Wait() }
}
