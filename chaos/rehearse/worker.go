package rehearse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/deterministic"
	"skerry/chaos/history"
	"skerry/chaos/report"
	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
	"skerry/fleet"
)

// Files of a rehearsal, in its folder.
const (
	playedFile = "played.jsonl"
	seenFile   = "seen.jsonl"
	outputFile = "output.txt" // what the process said
	dataDir    = "data"
)

// Bounds of what is read of a Worker, in bytes.
const (
	maxWorkerInput = 16 << 20
	maxOutput      = 64 << 10
)

// workerInput is what a Worker is told, as JSON on its standard input.
type workerInput struct {
	Name, Repeat string
	Folder       string
	Schedule     string // as the text of a scenario
	Fleet        virtual.Fleet
}

// Work plays one rehearsal, and ends the process, unless it cannot read what to rehearse.
func Work(in io.Reader) error {
	var o workerInput
	if err := json.NewDecoder(io.LimitReader(in, maxWorkerInput)).Decode(&o); err != nil {
		return fmt.Errorf("read what to rehearse: %w", err)
	}
	virtual.Main(o.runRehearsal)
	return nil
}

func (o workerInput) runRehearsal() (err error) {
	s, err := schedule.Parse(o.Name, []byte(o.Schedule))
	if err != nil {
		return err
	}
	deterministic.Seed(s.Seed)
	f, err := os.Create(filepath.Join(o.Folder, playedFile))
	if err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p := virtual.Play{
		Schedule: s, Name: o.Name, Repeat: o.Repeat, Dir: filepath.Join(o.Folder, dataDir), LogLevel: slog.LevelWarn,
		Tuning: virtual.Stretched, Fleet: o.Fleet, History: f,
	}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the cluster: %w", err)
	}
	// Nobody asks what a rehearsal cost, and inside a bubble nobody could tell.
	_, err = p.Run(context.Background(), func() time.Duration { return 0 })
	return err
}

// Answer is what a rehearsal showed.
type Answer struct{ *report.Rehearsal }

// Run plays the rehearsal. program is the command line that makes a program call Work.
func (c Config) Run(ctx context.Context, program []string) (a Answer, err error) {
	s, err := c.Schedule()
	if err != nil {
		return a, err
	}
	folder, err := os.MkdirTemp(c.Dir, "skerry-rehearsal-")
	if err != nil {
		return a, fmt.Errorf("make a folder for the rehearsal: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	told, err := json.Marshal(workerInput{Name: c.Name, Repeat: c.Repeat, Folder: folder, Schedule: s.String(), Fleet: c.simulatedFleet()})
	if err != nil {
		return a, fmt.Errorf("encode what to rehearse: %w", err)
	}
	if err := runWorker(ctx, program, folder, told, s.Seed); err != nil {
		return a, fmt.Errorf("rehearse %s: %w", c.Name, err)
	}
	seen, unplaced, err := copyRecordsUntil(filepath.Join(folder, playedFile), filepath.Join(folder, seenFile), s.Length)
	if err != nil {
		return a, fmt.Errorf("rehearse %s: %w", c.Name, err)
	}
	defer func() { err = errors.Join(err, seen.Close()) }()
	if a.Rehearsal, err = report.Rehearse(seen, c.systemJobs()...); err != nil {
		return a, err
	}
	a.Unplaced, a.Notes = unplaced, append(c.missedFaultNotes(a.Rehearsal), c.Notes()...)
	if len(a.Places) == 0 && len(unplaced) == 0 {
		unplaced = []string{"no node fits: the jobs' datacenters, node pools and constraints leave out all " + nodeCountText(len(c.Fleet.Edges))}
	}
	if len(a.Places) == 0 {
		return a, fmt.Errorf("rehearse %s: %w: %s", c.Name, ErrUnplaced, strings.Join(unplaced, "; "))
	}
	a.removeSettledViolation()
	return a, nil
}

// systemJobs are the jobs that run one instance on each node.
func (c Config) systemJobs() []fleet.JobID {
	var ids []fleet.JobID
	for _, job := range c.Jobs {
		if job.Type == fleet.JobTypeSystem || job.Type == fleet.JobTypeSysBatch {
			ids = append(ids, job.ID)
		}
	}
	return ids
}

// removeSettledViolation takes back that the fleet never settled, where the jobs ask for more than it
// has room for: that is said already.
func (a *Answer) removeSettledViolation() {
	if len(a.Unplaced) == 0 || a.Outcome != history.Violated || len(a.Reasons) > 0 {
		return
	}
	a.Broken = slices.DeleteFunc(a.Broken, func(v check.Violation) bool { return v.Invariant == check.Settled })
	if len(a.Broken) == 0 {
		a.Outcome = history.Pass
	}
}

// runWorker runs a Worker to its end.
func runWorker(ctx context.Context, program []string, folder string, told []byte, seed uint64) error {
	path := filepath.Join(folder, outputFile)
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep what it says: %w", err)
	}
	failed := deterministic.Run(ctx, deterministic.Command{
		Path: program[0], Args: program, Env: deterministic.Environ(), Input: told, Output: out, Seed: seed,
	})
	if err := out.Close(); err != nil {
		return fmt.Errorf("keep what it says: %w", err)
	}
	if failed == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said, err := os.ReadFile(path)
	if err != nil {
		return errors.Join(failed, err)
	}
	return fmt.Errorf("%w: %s", failed, bytes.TrimSpace(said[:min(len(said), maxOutput)]))
}
