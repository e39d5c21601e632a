package virtual

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/deterministic"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
)

// Files of a Job, in its folder.
const (
	ScheduleFile = "schedule.yaml"
	HistoryFile  = "history.jsonl"
	ResultFile   = "result.json"
	OutputFile   = "output.txt" // what the process said: a panic, if it was one
)

// Bounds of what is read, in bytes: of a scenario's file, and of a job.
const (
	maxSchedule = 16 << 20
	maxJob      = 16 << 20
)

// readAtOnce is how much of a job is read in one piece, in bytes: until it has read its input, a
// process is kept from chance (package deterministic).
const readAtOnce = 64 << 10

// Job is a play in a process of its own, which is told of it as JSON on its standard input.
type Job struct {
	Name   string
	Repeat string
	Folder string // of the run; its schedule is in there
	Data   string // folder of the cluster's data directories
	// Record keeps the history. A run that passes is rarely looked at again.
	Record bool

	Strict      bool // these are Play's
	Tuning      HubTuning
	RaftStreams bool
	LogLevel    slog.Level
	Fleet       Fleet
}

// Result is what a run showed, as Work leaves it in the job's folder.
type Result struct {
	Run   history.Run
	Found []check.Violation
	Error string // why the harness failed; "": it did not
}

// Run plays the job in a process of its own: program is the command line that makes a program
// call Work, and has nothing to do but that.
func (j Job) Run(ctx context.Context, program []string, seed uint64) error {
	told, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode the job: %w", err)
	}
	out, err := os.Create(filepath.Join(j.Folder, OutputFile))
	if err != nil {
		return fmt.Errorf("keep its output: %w", err)
	}
	err = deterministic.Run(ctx, deterministic.Command{
		Path: program[0], Args: program, Env: deterministic.Environ(), Input: told, Output: out, Seed: seed,
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, out.Close())
}

// Result reads what Work left.
func (j Job) Result() (r Result, err error) {
	b, err := os.ReadFile(filepath.Join(j.Folder, ResultFile))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

// Work plays one job, and ends the process, unless it cannot read the job.
func Work(in io.Reader) error {
	var j Job
	if err := json.NewDecoder(bufio.NewReaderSize(io.LimitReader(in, maxJob), readAtOnce)).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	Main(j.playScheduleFile)
	return nil
}

func (j Job) playScheduleFile() (err error) {
	s, err := ReadSchedule(filepath.Join(j.Folder, ScheduleFile))
	if err != nil {
		return err
	}
	deterministic.Seed(s.Seed)
	p := Play{
		Schedule: s, Name: j.Name, Repeat: j.Repeat, Dir: j.Data, LogLevel: j.LogLevel,
		Tuning: j.Tuning, RaftStreams: j.RaftStreams, Strict: j.Strict, Fleet: j.Fleet,
	}
	if j.Record {
		f, err := os.Create(filepath.Join(j.Folder, HistoryFile))
		if err != nil {
			return fmt.Errorf("keep the history: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		p.History = f
	}
	o, failed := p.Run(context.Background(), NewWallClock())
	r := Result{Run: o.Run, Found: o.Found}
	if failed != nil {
		r.Error = failed.Error()
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return os.WriteFile(filepath.Join(j.Folder, ResultFile), b, 0o600)
}

// NewWallClock is the time outside of the bubble, where package time does not look.
func NewWallClock() func() time.Duration {
	now := func() time.Duration {
		var tv syscall.Timeval
		if err := syscall.Gettimeofday(&tv); err != nil {
			return 0
		}
		return time.Duration(tv.Nano())
	}
	began := now()
	return func() time.Duration { return now() - began }
}

// ReadSchedule reads a scenario's file.
func ReadSchedule(path string) (schedule.Schedule, error) {
	f, err := os.Open(path)
	if err != nil {
		return schedule.Schedule{}, fmt.Errorf("read the scenario: %w", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxSchedule))
	if err != nil {
		return schedule.Schedule{}, fmt.Errorf("read the scenario %s: %w", path, err)
	}
	return schedule.Parse(path, src)
}
