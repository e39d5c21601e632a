package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	a.Notes = append(c.missedFaultNotes(a), c.listNotes()...)
	if len(unplaced) > 0 {
		removeSettledViolation(a)
	}
	started := len(a.Places) > 0
	c.addUnplaced(a, unplaced)
	if !started {
		return a, fmt.Errorf("rehearse %s: %w: %s", c.Name, errUnplaced, strings.Join(a.Unplaced, "; "))
	}
	return a, nil
}

// addUnplaced adds the instances that were never placed to the rehearsal, and the reasons, by JOB.GROUP. A
// group that runs on each node has no instances without a node, and no blocked evaluation if no node fits.
func (c rehearsal) addUnplaced(a *report.Rehearsal, reasons map[string]string) {
	for _, job := range c.allJobs() {
		for _, g := range job.TaskGroups {
			name := groupName(job.ID, g.Name)
			switch placed := slices.ContainsFunc(a.Places, func(p report.RehearsedPlace) bool { return strings.HasPrefix(p.Name, name+"[") }); {
			case !job.Starts(): // its children have names of their own
			case !fleet.RunsEverywhere(job.Type):
				var names []string
				for i := range g.Count {
					names = append(names, fmt.Sprintf("%s[%d]", name, i))
				}
				a.AddUnplaced(job.ID, names...)
			case !placed && reasons[name] == "":
				reasons[name] = fmt.Sprintf("%s found no place: no node fits: the job's datacenters, node pool and constraints leave out all %s",
					name, history.Plural(len(c.Fleet.Edges), "node"))
			}
		}
	}
	a.Unplaced = slices.Sorted(maps.Values(reasons))
}

// systemJobs returns the ids of the jobs that run one allocation on each node.
func (c rehearsal) systemJobs() []fleet.JobID {
	var ids []fleet.JobID
	for _, job := range c.Jobs {
		if fleet.RunsEverywhere(job.Type) {
			ids = append(ids, job.ID)
		}
	}
	return ids
}

// removeSettledViolation removes the violation that the fleet did not settle. It is expected if an
// evaluation is blocked, and the answer already reports that. It sets the outcome accordingly.
func removeSettledViolation(a *report.Rehearsal) {
	if a.Outcome != history.Violated || len(a.Reasons) > 0 {
		return
	}
	a.Broken = slices.DeleteFunc(a.Broken, func(v check.Violation) bool { return v.Invariant == check.Settled })
	if len(a.Broken) == 0 {
		a.Outcome = history.Pass
	}
}
