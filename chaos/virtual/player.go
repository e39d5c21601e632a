package virtual

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
)

// player plays one schedule of a campaign in a process of its own. folder is the run's directory;
// record keeps its history, and its data directories unless it passes.
type player struct {
	c      *campaign
	s      Scenario
	folder string
	record bool
}

// playRun plays the schedule and returns its result; an error is a failure of the campaign itself.
// It first deletes p.folder. With p.record it copies the data directories of a run that did not
// pass there.
func (p player) playRun(ctx context.Context) (r Result, err error) {
	if err := os.RemoveAll(p.folder); err != nil {
		return r, fmt.Errorf("play %s: %w", p.s.Name, err)
	}
	memory := p.c.Memory
	if memory == "" {
		memory = p.folder
	}
	// All names have one length: longer ones take more memory, and runs have to be alike.
	data := filepath.Join(memory, fmt.Sprintf("skerry-run-%010d-%06d", os.Getpid(), p.c.played.Add(1)))
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	began := time.Now()
	r = p.runJob(ctx, p.newJob(data))
	if r.Run.Wall == 0 {
		r.Run.Wall = time.Since(began)
	}
	if r.Run.Outcome == history.Pass || !p.record {
		return r, nil
	}
	if err := os.CopyFS(filepath.Join(p.folder, dataDir), os.DirFS(data)); err != nil {
		return r, fmt.Errorf("keep the data of %s: %w", p.s.Name, err)
	}
	return r, nil
}

// productionEvery: one of that many seeds is played with the timers and transport of production.
const productionEvery = 100

// drawnTTL is the heartbeat TTL in drawn runs: that of 45,000 edges with three hubs.
const drawnTTL = 30 * time.Second

// newJob returns the job for the run's process. Its data directories will be below data.
func (p player) newJob(data string) Job {
	j := Job{Folder: p.folder, Record: p.record, MaxProcessorTime: maxProcessorTime, Play: Play{
		Schedule: p.s.Schedule, Name: p.s.Name, Repeat: p.repeatCommand(), Dir: data,
		Strict: !p.isDrawnFromSeed(), Tuning: Stretched, LogLevel: slog.LevelInfo,
	}}
	switch {
	case p.s.Schedule.Seed%productionEvery == productionEvery-1:
		j.Tuning = HubTuning{}
	case !j.Strict:
		j.Tuning, j.RaftStreams, j.Fleet.MinTTL = Drawn, true, drawnTTL
	}
	if p.c.Debug {
		j.LogLevel = slog.LevelDebug
	}
	return j
}

// repeatCommand returns the command line that repeats the run.
func (p player) repeatCommand() string {
	if p.isDrawnFromSeed() {
		return fmt.Sprintf("skerry-chaos sim --seed %d --seeds 1", p.s.Schedule.Seed)
	}
	return "skerry-chaos sim --scenario " + p.s.Name
}

// isDrawnFromSeed reports whether the schedule was drawn from a seed.
func (p player) isDrawnFromSeed() bool { return strings.HasPrefix(p.s.Name, "seed ") }

// Bounds of a run. The processor time, several times what the longest scenario takes, does not depend on what else the
// machine does. The real time ends a run that hangs without using the processor.
const (
	maxProcessorTime = 5 * time.Minute
	maxRealTime      = 30 * time.Minute
)

// runJob runs the job in a process and returns its result. If the process left none, the result
// is made of its output: violated if goroutines leaked, otherwise broken.
func (p player) runJob(ctx context.Context, j Job) Result {
	ctx, cancel := context.WithTimeoutCause(ctx, maxRealTime, fmt.Errorf("it did not end within %s", maxRealTime))
	defer cancel()
	r, err := j.Run(ctx, p.c.Program)
	if err == nil {
		return r
	}
	r.Run.Name, r.Run.Seed, r.Run.Clock = p.s.Name, p.s.Schedule.Seed, history.Virtual
	r.Run.Outcome = history.Broken
	said := ""
	if crash := (*CrashError)(nil); errors.As(err, &crash) {
		err, said = crash.Cause, crash.Said
	}
	if hasLeakedGoroutines(said) {
		r.Run.Outcome = history.Violated
		v := check.Violation{Invariant: check.NoLeak, Where: "the process", Message: "goroutines go on after the cluster was closed", Evidence: panicLines(said)}
		r.Found = append(r.Found, v)
		r.Run.Violations = append(r.Run.Violations, history.ViolationCount{Invariant: check.NoLeak, Count: 1})
	}
	r.Run.Reasons = append(r.Run.Reasons, fmt.Sprintf("the process ended with: %v", err))
	r.Run.Reasons = append(r.Run.Reasons, panicLines(said)...)
	return r
}

// hasLeakedGoroutines reports whether the output of a process says that a bubble ended while
// goroutines of it were blocked.
func hasLeakedGoroutines(output string) bool {
	return strings.Contains(output, "main bubble goroutine has exited but blocked goroutines remain")
}

// panicLines returns the first lines of the output of a process that crashed.
func panicLines(said string) []string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return lines[:min(len(lines), 12)]
}
