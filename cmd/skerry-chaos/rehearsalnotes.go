package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/chaos/report"
	"skerry/drivers/sim"
	"skerry/fleet"
)

// listNotes returns notes for the user about the real and the simulated parts of the rehearsal.
func (c rehearsal) listNotes() []string {
	real := slices.DeleteFunc(c.neededDrivers(), func(d string) bool { return d == sim.Name })
	notes := []string{"Real: hubs, edges, QUIC, journals, placement, absence rules, restarts, reschedules. Simulated: network, machines, clocks, time."}
	if len(real) > 0 {
		notes = append(notes, fmt.Sprintf("Tasks of the driver %s were not run. Simulated tasks took their place: %s.",
			strings.Join(real, ", "), c.describeTaskBehaviour()))
	}
	return notes
}

// describeTaskBehaviour describes how long the simulated tasks run.
func (c rehearsal) describeTaskBehaviour() string {
	var parts []string
	for _, t := range []struct {
		ends bool
		does string
	}{
		{false, "those of service and system jobs run until they are stopped"},
		{true, fmt.Sprintf("those of batch and sysbatch jobs run for %s and succeed", cmp.Or(c.TaskRun, defaultTaskRun))},
	} {
		if slices.ContainsFunc(c.allJobs(), func(j *fleet.Job) bool { return endsByItself(j) == t.ends }) {
			parts = append(parts, t.does)
		}
	}
	return strings.Join(parts, ", ")
}

// missedFaultNotes returns a warning for each fault on an edge that ran no task of the jobs during
// the fault.
func (c rehearsal) missedFaultNotes(r *report.Rehearsal) []string {
	var notes []string
	for _, f := range r.Faults {
		for _, edge := range f.On {
			if !slices.Contains(r.Edges, edge) || runsAnything(r, edge, f.From, f.To) {
				continue
			}
			notes = append(notes, fmt.Sprintf("Warning: %s ran nothing of these jobs during the %s: choose another edge, for example %s.",
				edge, f.What, strings.Join(edgesWithTasks(r, f.From), ", ")))
		}
	}
	return notes
}

// runsAnything reports whether tasks of the jobs ran on an edge between two times.
func runsAnything(r *report.Rehearsal, edge string, from, to time.Duration) bool {
	for _, p := range r.Places {
		for _, a := range p.Allocs {
			if a.Edge == edge && slices.ContainsFunc(a.Ran, func(w report.Window) bool { return w.From <= to && w.To >= from }) {
				return true
			}
		}
	}
	return false
}

// edgesWithTasks returns up to three edges that ran tasks of the jobs at that time, or a text that
// there are none.
func edgesWithTasks(r *report.Rehearsal, at time.Duration) []string {
	var names []string
	for _, edge := range r.Edges {
		if len(names) < 3 && runsAnything(r, edge, at, at) {
			names = append(names, edge)
		}
	}
	if len(names) == 0 {
		return []string{"none: nothing ran then"}
	}
	return names
}
