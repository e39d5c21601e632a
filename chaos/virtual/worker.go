package virtual

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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
	resultFile   = "result.json"
	outputFile   = "output.txt" // what the process said: a panic, if it was one
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
	Play
	Folder string // of the run; what it leaves lies there
	// Record keeps the history. A run that passes is rarely looked at again.
	Record bool
}

// Result is what a run showed, as Work leaves it in the job's folder.
type Result struct {
	Run   history.Run
	Found []check.Violation
	Error string // why the harness failed; "": it did not
}

// CrashError is the error of a process that left no result.
type CrashError struct {
	Cause error
	Said  string // its first words
}

// Error is the cause, with what the process said.
func (e *CrashError) Error() string { return fmt.Sprintf("%v: %s", e.Cause, strings.TrimSpace(e.Said)) }

// Unwrap returns the cause.
func (e *CrashError) Unwrap() error { return e.Cause }

// maxOutput bounds what is read of what a process said, in bytes.
const maxOutput = 256 << 10

// Run plays the job in a process of its own: program is the command line that makes a program
// call Work, and has nothing to do but that. An error is a *CrashError, or the harness's own.
func (j Job) Run(ctx context.Context, program []string) (r Result, err error) {
	for _, folder := range []string{j.Folder, j.Dir} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return r, fmt.Errorf("make the folders of the run: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(j.Folder, ScheduleFile), []byte(j.Schedule.String()), 0o600); err != nil {
		return r, fmt.Errorf("keep the schedule: %w", err)
	}
	failed := j.runProcess(ctx, program)
	b, err := os.ReadFile(filepath.Join(j.Folder, resultFile))
	if err = errors.Join(failed, err); err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil {
		return r, nil
	}
	said, readErr := os.ReadFile(filepath.Join(j.Folder, outputFile))
	return r, &CrashError{errors.Join(err, readErr), string(said[:min(len(said), maxOutput)])}
}

func (j Job) runProcess(ctx context.Context, program []string) error {
	told, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode the job: %w", err)
	}
	out, err := os.Create(filepath.Join(j.Folder, outputFile))
	if err != nil {
		return fmt.Errorf("keep its output: %w", err)
	}
	err = deterministic.Run(ctx, deterministic.Command{
		Path: program[0], Args: program, Env: deterministic.Environ(), Input: told, Output: out, Seed: j.Schedule.Seed,
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, out.Close())
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
	if j.Schedule, err = ReadSchedule(filepath.Join(j.Folder, ScheduleFile)); err != nil {
		return err
	}
	deterministic.Seed(j.Schedule.Seed)
	if j.Record {
		f, err := os.Create(filepath.Join(j.Folder, HistoryFile))
		if err != nil {
			return fmt.Errorf("keep the history: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		j.History = f
	}
	o, failed := j.Play.Run(context.Background())
	r := Result{Run: o.Run, Found: o.Found}
	if failed != nil {
		r.Error = failed.Error()
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return os.WriteFile(filepath.Join(j.Folder, resultFile), b, 0o600)
}

// wallTime is the time outside of the bubble, where package time does not look.
func wallTime() time.Duration {
	var tv syscall.Timeval
	if err := syscall.Gettimeofday(&tv); err != nil {
		return 0
	}
	return time.Duration(tv.Nano())
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
