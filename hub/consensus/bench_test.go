package consensus_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// BenchmarkApply measures how long a command takes to be committed, from its
// caller's view, and how many are committed a second, beside a bare fsync of as
// many bytes on the same disk.
func BenchmarkApply(b *testing.B) {
	b.Run("fsync", benchmarkFsync)
	for _, hubs := range []int{1, 3} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("hubs=%d/callers=%d", hubs, callers), func(b *testing.B) {
				c := newCluster(b, nil)
				one := c.mustStart("one", "", true)
				for i := 1; i < hubs; i++ {
					c.mustStart(fleet.HubID(fmt.Sprintf("hub%d", i)), "", false).mustJoin(b, one)
				}
				leader := c.mustLeader(one)
				benchmarkApply(b, leader, callers)
			})
		}
	}
}

func benchmarkApply(b *testing.B, h *hub, callers int) {
	cmd := state.Token{Token: state.JoinToken{ID: "bench", Hash: bytes.Repeat([]byte{1}, 300)}}
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				start := time.Now()
				if _, err := h.Apply(b.Context(), cmd); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	report(b, took)
}

func benchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(16 << 20); err != nil {
		b.Fatal(err)
	}
	page := make([]byte, 512)
	took := make([]time.Duration, b.N)
	for i := range b.N {
		start := time.Now()
		if _, err := f.WriteAt(page, int64(i*len(page)%(16<<20))); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		took[i] = time.Since(start)
	}
	report(b, took)
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
