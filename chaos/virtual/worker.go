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
	"sync"
	"syscall"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/deterministic"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
)

// Files of a Job, in its directory.
const (
	ScheduleFile = "schedule.yaml"
	HistoryFile  = "history.jsonl"
	resultFile   = "result.json"
	outputFile   = "output.txt" // stdout and stderr of the process, for example a panic
)

// Maximum sizes of a scenario's file and of a job, in bytes.
const (
	maxSchedule = 16 << 20
	maxJob      = 16 << 20
)

// readAtOnce is the size of the buffer for a job, in bytes. Package deterministic keeps a process
// deterministic until it has read its input, so one read has to be enough.
const readAtOnce = 64 << 10

// Job is a play for a process of its own, which reads the job as JSON from its standard input.
type Job struct {
	Play
	Folder string // the run's directory, for schedule, history, result and output
	// Record keeps the history.
	Record bool
	// Until is the slug of an invariant: the play ends as soon as it is broken. "": the play goes on to its end.
	Until string `json:",omitempty"`
	// MaxProcessorTime bounds what the process may use, on Linux. 0: no bound.
	MaxProcessorTime time.Duration `json:"-"`
}

// Result is the result of a run; Work writes it to the job's directory.
type Result struct {
	Run   history.Run
	Found []check.Violation
	Error string // failure of the harness; "": none
}

// CrashError is the error of a process that wrote no result.
type CrashError struct {
	Cause error
	Said  string // the beginning of its output
}

// Error returns the cause and the output of the process.
func (e *CrashError) Error() string { return fmt.Sprintf("%v: %s", e.Cause, strings.TrimSpace(e.Said)) }

// Unwrap returns the cause.
func (e *CrashError) Unwrap() error { return e.Cause }

// maxOutput is the maximum number of bytes that are used of a process's output.
const maxOutput = 256 << 10

// Run plays the job in a process of its own and waits for it. program is a command line that does
// nothing but call Work. The error is a *CrashError if the process left no result; other errors
// mean that it was not started.
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

// runProcess starts the program, sends it the job, and waits until it ends or ctx is done. Its
// output goes to outputFile.
func (j Job) runProcess(ctx context.Context, program []string) error {
	told, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encode the job: %w", err)
	}
	out, err := os.Create(filepath.Join(j.Folder, outputFile))
	if err != nil {
		return fmt.Errorf("create the file of the run's output: %w", err)
	}
	err = deterministic.Run(ctx, deterministic.Command{
		Path: program[0], Args: program, Env: deterministic.Environ(), Input: told, Output: out, Seed: j.Schedule.Seed,
		MaxProcessorTime: j.MaxProcessorTime,
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, out.Close())
}

// Work reads one job from in, plays it, writes its result, and ends the process. It returns only if
// it cannot read the job.
func Work(in io.Reader) error {
	var j Job
	if err := json.NewDecoder(bufio.NewReaderSize(io.LimitReader(in, maxJob), readAtOnce)).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	Main(j.playScheduleFile)
	return nil
}

// playScheduleFile plays the schedule in the job's directory and writes the history, if j.Record is
// set, and the result there. It must be called inside a bubble.
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
	if j.Until != "" {
		j.Found = j.endWhenBroken()
	}
	o, failed := j.Play.Run(context.Background())
	r := Result{Run: o.Run, Found: o.Found}
	if failed != nil {
		r.Error = failed.Error()
	}
	return j.writeResult(r)
}

// endWhenBroken returns a callback for violations that writes the result and ends the process when j.Until is broken.
func (j Job) endWhenBroken() func(check.Violation) {
	var mu sync.Mutex
	var found []check.Violation
	return func(v check.Violation) {
		mu.Lock()
		defer mu.Unlock()
		if found = append(found, v); v.Invariant.Slug() != j.Until {
			return
		}
		if err := j.writeResult(Result{Run: history.Run{Outcome: history.Violated}, Found: found}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// writeResult writes the result of the run to the job's directory.
func (j Job) writeResult(r Result) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return os.WriteFile(filepath.Join(j.Folder, resultFile), b, 0o600)
}

// wallTime returns the real time; inside a bubble package time returns the virtual one.
func wallTime() time.Duration {
	var tv syscall.Timeval
	if err := syscall.Gettimeofday(&tv); err != nil {
		return 0
	}
	return time.Duration(tv.Nano())
}

// ReadSchedule reads a scenario from a file and validates it. A mistake in it is schedule.Diagnostics.
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
