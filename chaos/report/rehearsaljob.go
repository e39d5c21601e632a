package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// ShownStatus is what the hubs called an allocation that was out of their sight, and when.
type ShownStatus struct {
	Status string // unknown or lost
	Window
}

// JobLow is how few of a job's instances ran, once all of those had run that ever ran
// at a time.
type JobLow struct {
	Job       fleet.JobID
	Instances int
	Most      int // that ran at a time
	Least     int
	// Below is when fewer than Most ran. What was completed or stopped is not missed.
	Below []Window
}

// Lows returns how few instances of each job ran, by job.
func (r *Rehearsal) Lows() []JobLow {
	byJob := map[fleet.JobID][]RehearsedPlace{}
	for _, p := range r.Places {
		byJob[p.Job] = append(byJob[p.Job], p)
	}
	var lows []JobLow
	for _, id := range slices.Sorted(maps.Keys(byJob)) {
		low := JobLow{Job: id, Instances: len(byJob[id])}
		low.followInstances(byJob[id], r.Lasted)
		lows = append(lows, low)
	}
	return lows
}

// runningChange is a place that begins or ends to run, or is not asked for any more.
type runningChange struct {
	at       time.Duration
	runs, of int
}

// followInstances follows the number of places that run over time.
func (l *JobLow) followInstances(places []RehearsedPlace, lasted time.Duration) {
	var steps []runningChange
	for _, p := range places {
		end := p.demandEnd(lasted)
		var until time.Duration = -1
		for _, w := range p.runWindows() { // by beginning; overlapping ones are one
			from, to := max(w.From, until), min(w.To, end)
			if to <= from {
				continue
			}
			steps = append(steps, runningChange{from, 1, 0}, runningChange{to, -1, 0})
			until = to
		}
		if end < lasted {
			steps = append(steps, runningChange{end, 0, -1})
		}
	}
	slices.SortStableFunc(steps, func(a, b runningChange) int { return cmp.Compare(a.at, b.at) })
	running, missed := 0, 0 // missed is how many of the most are no longer asked for
	for i := 0; i < len(steps); {
		at := steps[i].at
		for ; i < len(steps) && steps[i].at == at; i++ {
			running += steps[i].runs
			missed -= steps[i].of
		}
		if running > l.Most {
			l.Most, l.Least, l.Below, missed = running, running, nil, 0
			continue
		}
		if at >= lasted {
			break
		}
		l.recordRunning(at, running, max(0, l.Most-missed))
	}
	if n := len(l.Below); n > 0 && l.Below[n-1].To == 0 {
		l.Below[n-1].To = lasted
	}
}

// recordRunning takes that so many run from a time on, of so many that are wanted.
func (l *JobLow) recordRunning(at time.Duration, running, wanted int) {
	n := len(l.Below)
	open := n > 0 && l.Below[n-1].To == 0
	if running < wanted {
		l.Least = min(l.Least, running)
	}
	switch {
	case running < wanted && !open:
		l.Below = append(l.Below, Window{From: at})
	case running >= wanted && open:
		l.Below[n-1].To = at
	}
}

// String says it in a line.
func (l JobLow) String() string {
	if len(l.Below) == 0 {
		return fmt.Sprintf("%s: %s, never fewer than %d running", l.Job, plural(l.Instances, "instance"), l.Least)
	}
	var sum time.Duration
	for _, w := range l.Below {
		sum += w.To - w.From
	}
	return fmt.Sprintf("%s: %s, at least %d running; fewer than %d for %s in all, from %s on",
		l.Job, plural(l.Instances, "instance"), l.Least, l.Most, stamp(sum), stamp(l.Below[0].From))
}

// windows prints when something was.
func windows(ws []Window, lasted time.Duration) string {
	var parts []string
	for _, w := range ws {
		if w.To >= lasted {
			parts = append(parts, "from "+stamp(w.From))
		} else {
			parts = append(parts, stamp(w.From)+" to "+stamp(w.To))
		}
	}
	if len(parts) == 0 {
		return "never"
	}
	return strings.Join(parts, ", ")
}

// formatHubView prints what the hubs showed of an allocation.
func (a RehearsedAlloc) formatHubView(lasted time.Duration) string {
	var parts []string
	for _, s := range a.Showed {
		parts = append(parts, s.Status+" "+windows([]Window{s.Window}, lasted))
	}
	if a.End != "" {
		parts = append(parts, a.End+" at "+stamp(a.Ended))
	}
	if len(parts) == 0 {
		return "running"
	}
	return strings.Join(parts, "; ")
}

// allocTable has a row for each allocation of the places.
func (r *Rehearsal) allocTable(places []RehearsedPlace) *table {
	t := &table{
		Heads: []string{"allocation", "instance", "edge", "its tasks ran", "the hubs showed"}, wrap: 4,
		most: maxPlaces, mostText: maxPlacesText,
	}
	for _, p := range places {
		for _, a := range p.Allocs {
			t.addRow(fleet.Short(a.ID), p.Name, a.Edge, truncateText(windows(a.Ran, r.Lasted), 30), a.formatHubView(r.Lasted))
		}
	}
	return t
}
