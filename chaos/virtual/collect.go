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
	// collectEvery is how often somebody looks whether there is much to collect, at a time
	// when nothing else falls due.
	collectEvery = 500*time.Millisecond + 3*time.Microsecond + 1
	// collections is how many such looks there are at most in a run.
	collections = 1_000_000
	// collectAbove is how large the heap becomes before it is collected.
	collectAbove = 384 << 20
)

// collectAtRest collects garbage when everybody sleeps, until stop is called. A process
// that leaves it to the runtime collects in the middle of something, at another place in
// each run, and that changes the order of what happens in one instant.
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
