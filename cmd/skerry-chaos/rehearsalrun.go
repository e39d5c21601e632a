package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/report"
	"skerry/chaos/virtual"
	"skerry/fleet"
)

// seenFile is the file name of the history without the records after the rehearsal's end.
const seenFile = "seen.jsonl"

// playRehearsal plays the rehearsal in virtual time and evaluates its history. program is the command
// line of a program that calls virtual.Work. The error is errUnplaced if no allocation was placed.
func (c rehearsal) playRehearsal(ctx context.Context, program []string) (a *report.Rehearsal, err error) {
	s, err := c.buildSchedule()
	if err != nil {
		return a, err
	}
	folder, err := os.MkdirTemp(c.Dir, "skerry-rehearsal-")
	if err != nil {
		return a, fmt.Errorf("make a folder for the rehearsal: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	result, err := virtual.Job{Folder: folder, Record: true, Play: virtual.Play{
		Schedule: s, Name: c.Name, Repeat: c.Repeat, Dir: filepath.Join(folder, "data"),
		Tuning: virtual.Stretched, LogLevel: slog.LevelWarn, Fleet: c.simulatedFleet(),
	}}.Run(ctx, program)
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	if err != nil {
		return a, fmt.Errorf("rehearse %s: %w", c.Name, err)
	}
	seen, unplaced, err := copyRecordsUntil(filepath.Join(folder, virtual.HistoryFile), filepath.Join(folder, seenFile), s.Length)
	if err != nil {
		return a, fmt.Errorf("rehearse %s: %w", c.Name, err)
	}
	defer func() { err = errors.Join(err, seen.Close()) }()
	if a, err = report.Rehearse(seen, c.systemJobs()...); err != nil {
		return a, err
	}
	a.Unplaced, a.Notes = unplaced, append(c.missedFaultNotes(a), c.listNotes()...)
	if len(a.Places) == 0 && len(unplaced) == 0 {
		unplaced = []string{"no node fits: the jobs' datacenters, node pools and constraints leave out all " + history.Plural(len(c.Fleet.Edges), "node")}
	}
	if len(a.Places) == 0 {
		return a, fmt.Errorf("rehearse %s: %w: %s", c.Name, errUnplaced, strings.Join(unplaced, "; "))
	}
	removeSettledViolation(a)
	return a, nil
}

// systemJobs returns the ids of the jobs that run one allocation on each node.
func (c rehearsal) systemJobs() []fleet.JobID {
	var ids []fleet.JobID
	for _, job := range c.Jobs {
		if job.Type == fleet.JobTypeSystem || job.Type == fleet.JobTypeSysBatch {
			ids = append(ids, job.ID)
		}
	}
	return ids
}

// removeSettledViolation removes the violation that the fleet did not settle if allocations found no
// node: then it is expected, and the answer already reports it. It sets the outcome accordingly.
func removeSettledViolation(a *report.Rehearsal) {
	if len(a.Unplaced) == 0 || a.Outcome != history.Violated || len(a.Reasons) > 0 {
		return
	}
	a.Broken = slices.DeleteFunc(a.Broken, func(v check.Violation) bool { return v.Invariant == check.Settled })
	if len(a.Broken) == 0 {
		a.Outcome = history.Pass
	}
}
