package campaign

import (
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
	"skerry/chaos/virtual"
)

// Files of a campaign, in its folder.
const (
	sumFile   = "campaign.json"
	indexFile = "index.html"
)

// Files of a run, in its folder.
const (
	scheduleFile = "schedule.yaml"
	historyFile  = "history.jsonl"
	resultFile   = "result.json"
	outputFile   = "output.txt" // what the process said: a panic, if it was one
	reportFile   = "report.html"
	shortestFile = "shortest.yaml"
	dataDir      = "data"
)

// maxSchedule bounds a scenario's file, in bytes.
const maxSchedule = 4 << 20

// Job is what a Worker is told, as JSON on its standard input.
type Job struct {
	Name   string
	Repeat string
	Folder string // of the run; its schedule is in there
	Data   string // folder of the cluster's data directories
	// Record keeps the history. A run that passes is rarely looked at again.
	Record   bool
	Defaults bool // hubs' own timers, not stretched ones, and Raft over QUIC
	Debug    bool // logs say everything
	Strict   bool // a fault that never hits breaks an expectation
}

// Result is what a run showed, as the Worker leaves it in its folder.
type Result struct {
	Run   history.Run
	Found []check.Violation
	Error string // why the harness failed; "": it did not
}

// drawnTTL of heartbeats in runs that are drawn: that of a fleet of 45,000 edges with three hubs.
const drawnTTL = 30 * time.Second

// Work plays one job, and ends the process, unless it cannot read the job.
func Work(in io.Reader) error {
	var j Job
	if err := json.NewDecoder(io.LimitReader(in, 1<<20)).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	virtual.Main(j.playScheduleFile)
	return nil
}

func (j Job) playScheduleFile() (err error) {
	s, err := ReadSchedule(filepath.Join(j.Folder, scheduleFile))
	if err != nil {
		return err
	}
	deterministic.Seed(s.Seed)
	p := virtual.Play{
		Schedule: s, Name: j.Name, Repeat: j.Repeat, Dir: j.Data, LogLevel: slog.LevelInfo,
		Tuning: virtual.Stretched, Strict: j.Strict,
	}
	switch {
	case j.Defaults:
		p.Tuning = virtual.HubTuning{}
	case !j.Strict:
		p.Tuning, p.RaftStreams = virtual.Drawn, true
		p.Fleet.MinTTL = drawnTTL
	}
	if j.Debug {
		p.LogLevel = slog.LevelDebug
	}
	if j.Record {
		f, err := os.Create(filepath.Join(j.Folder, historyFile))
		if err != nil {
			return fmt.Errorf("keep the history: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		p.History = f
	}
	o, failed := p.Run(context.Background(), newWallClock())
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

// newWallClock is the time outside of the bubble, where package time does not look.
func newWallClock() func() time.Duration {
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
