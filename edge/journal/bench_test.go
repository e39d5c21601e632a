package journal_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// benchConfig counts commits; each is one fsync of the log.
func benchConfig(b *testing.B, commits *atomic.Int64) journal.Config {
	cfg := newMachine().journalConfig(dbPath(b))
	cfg.Paranoid = false
	cfg.MaxBytes = 1 << 40
	cfg.Step = func(label string) error {
		if label == journal.StepCommit {
			commits.Add(1)
		}
		return nil
	}
	return cfg
}

// transition is a row of a task that crashes and restarts.
func transition(alloc int) fleet.Transition {
	now := time.Now()
	return fleet.Transition{
		Kind: fleet.TransitionTask, Alloc: allocID(alloc), Task: "web",
		TaskState: &fleet.TaskState{State: fleet.TaskRunning, Restarts: 3, StartedAt: &now, LastRestart: &now},
		Event:     &fleet.TaskEvent{Type: fleet.TaskStarted, Time: now.UnixNano(), DisplayMessage: "Task started by driver raw_exec"},
	}
}

func benchmarkRecord(b *testing.B, writers int) {
	var commits atomic.Int64
	j := mustOpen(b, benchConfig(b, &commits))
	commits.Store(0)
	ctx := context.Background()
	b.SetParallelism(writers)
	var next atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		t := transition(int(next.Add(1)))
		for pb.Next() {
			if err := j.Record(ctx, t); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(commits.Load())/float64(b.N), "fsyncs/row")
}

func BenchmarkRecordSingle(b *testing.B) {
	var commits atomic.Int64
	j := mustOpen(b, benchConfig(b, &commits))
	commits.Store(0)
	t := transition(1)
	for b.Loop() {
		mustRecord(b, j, t)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(commits.Load())/float64(b.N), "fsyncs/row")
}

// BenchmarkRecordConcurrent has 8 recorders for each processor.
func BenchmarkRecordConcurrent(b *testing.B) { benchmarkRecord(b, 8) }

// BenchmarkOpen opens a journal of 100,000 unacknowledged rows.
func BenchmarkOpen(b *testing.B) {
	cfg := benchConfig(b, new(atomic.Int64))
	j := mustOpen(b, cfg)
	const rows, batch = 100_000, 1000
	ts := make([]fleet.Transition, batch)
	for i := range ts {
		ts[i] = transition(i % 10)
	}
	for range rows / batch {
		mustRecord(b, j, ts...)
	}
	mustClose(b, j)
	if info, err := os.Stat(cfg.Path); err == nil {
		b.Logf("%d bytes on disk", info.Size())
	}
	for b.Loop() {
		j, err := journal.Open(cfg)
		if err != nil {
			b.Fatal(err)
		}
		if h := j.Head(); h.Last != rows {
			b.Fatalf("head: %+v", h)
		}
		b.StopTimer()
		mustClose(b, j)
		b.StartTimer()
	}
}

// BenchmarkBytesWritten reports the bytes written to disk for each transition, with its share of checkpoints.
func BenchmarkBytesWritten(b *testing.B) {
	j := mustOpen(b, benchConfig(b, new(atomic.Int64)))
	t := transition(1)
	before := mustWritten(b)
	for b.Loop() {
		mustRecord(b, j, t)
	}
	b.ReportMetric(float64(mustWritten(b)-before)/float64(b.N), "bytes/row")
}

func mustWritten(b *testing.B) int64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Fatal(err)
	}
	var rchar, wchar, syscr, syscw, read, written int64
	if _, err := fmt.Sscanf(string(text), "rchar: %d\nwchar: %d\nsyscr: %d\nsyscw: %d\nread_bytes: %d\nwrite_bytes: %d", &rchar, &wchar, &syscr, &syscw, &read, &written); err != nil {
		b.Fatal(err)
	}
	return wchar
}
