package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/fleet"
)

// Rehearsal is what would happen to somebody's own jobs: what keeps running, what
// is replaced, where and when, and what is lost.
type Rehearsal struct {
	Name     string // of the job file, or of the scenario
	Repeat   string // the command that repeats it
	Lasted   time.Duration
	Edges    []string
	Faults   []RehearsedFault
	Places   []RehearsedPlace // by name
	Outcome  history.Outcome  // of the run: whether the promises held
	Reasons  []string
	Broken   []check.Violation
	Notes    []string // of what was simulated, and how
	Unplaced []string // what found no place, and why
}

// RehearsedFault is what was broken, and when.
type RehearsedFault struct {
	What     string
	On       []string
	From, To time.Duration
}

// RehearsedPlace is one instance that a job asks for, and the allocations that filled it:
// JOB.GROUP[INDEX], or JOB.GROUP[EDGE] of a job that runs one instance on each node.
type RehearsedPlace struct {
	Name   string
	Job    fleet.JobID
	Allocs []RehearsedAlloc // in order of their beginning
}

// RehearsedAlloc is an allocation.
type RehearsedAlloc struct {
	ID       fleet.AllocID
	Edge     string
	Replaces fleet.AllocID // "": nothing
	Placed   time.Duration
	// Ran is when its tasks really ran, and Unseen when the hubs called it unknown
	// or lost.
	Ran, Unseen []Window
	Showed      []ShownStatus // Unseen, told apart
	// End is how it ended (complete, failed, lost, stopped), and Ended when; "": it
	// was there at the end.
	End   string
	Ended time.Duration
}

// Window is a stretch of time.
type Window struct{ From, To time.Duration }

// Fate is what became of a place.
type Fate string

const (
	KeptRunning  Fate = "kept running"  // the original ran all the time
	Interrupted  Fate = "interrupted"   // the original runs at the end, and did not all the time
	CameBack     Fate = "original kept" // it was replaced for a while
	WasReplaced  Fate = "replaced"      // another one runs at the end
	Completed    Fate = "completed"     // its work is done
	Stopped      Fate = "stopped"       // none runs, and none shall
	Failed       Fate = "failed"        // the last one failed, and nothing took its place
	Lost         Fate = "lost"          // given up, and nothing took its place
	NeverStarted Fate = "never started" // no task of it ever ran
	StillOut     Fate = "out of sight"  // at the end no hub knows how it is; it runs
	DownAtEnd    Fate = "down"          // at the end nothing of it runs, though it should
)

// Fate says what became of the place at the end of a rehearsal that lasted so
// long.
func (p RehearsedPlace) Fate(lasted time.Duration) Fate {
	if len(p.Allocs) == 0 || len(p.runWindows()) == 0 {
		return NeverStarted
	}
	live, last := p.currentAlloc(), p.Allocs[len(p.Allocs)-1]
	switch {
	case slices.ContainsFunc(p.Allocs, func(a RehearsedAlloc) bool { return a.End == endComplete }):
		return Completed
	case live == nil && last.End == endFailed:
		return Failed
	case live == nil && last.End == endLost:
		return Lost
	case live == nil:
		return Stopped
	case !live.runsAt(lasted):
		return DownAtEnd
	case len(live.Unseen) > 0 && live.Unseen[len(live.Unseen)-1].To >= lasted:
		return StillOut
	case live.ID != p.Allocs[0].ID:
		return WasReplaced
	case len(p.Allocs) > 1:
		return CameBack
	case p.Down(lasted) > 0:
		return Interrupted
	}
	return KeptRunning
}

// currentAlloc is the allocation that is there at the end, the newest if there are two.
func (p RehearsedPlace) currentAlloc() *RehearsedAlloc {
	for i := range slices.Backward(p.Allocs) {
		if p.Allocs[i].End == "" {
			return &p.Allocs[i]
		}
	}
	return nil
}

func (a *RehearsedAlloc) runsAt(at time.Duration) bool {
	return slices.ContainsFunc(a.Ran, func(w Window) bool { return w.From <= at && w.To >= at })
}

// runWindows are all windows in which a task of the place ran, by beginning.
func (p RehearsedPlace) runWindows() []Window {
	var ws []Window
	for _, a := range p.Allocs {
		ws = append(ws, a.Ran...)
	}
	slices.SortFunc(ws, func(a, b Window) int { return cmp.Compare(a.From, b.From) })
	return ws
}

// Down is how long nothing of the place ran between its first start and its end,
// or the end of the rehearsal, though it should have.
func (p RehearsedPlace) Down(lasted time.Duration) time.Duration {
	ws := p.runWindows()
	if len(ws) == 0 {
		return 0
	}
	end := p.demandEnd(lasted)
	var down time.Duration
	until := ws[0].From
	for _, w := range ws {
		if from := min(w.From, end); from > until && !p.pausedAt(until, from) {
			down += from - until
		}
		until = max(until, min(w.To, end))
	}
	return down + max(0, end-until)
}

// pausedAt reports whether between two windows the place was not asked for: all
// that had filled it were over as they should be, and what came then replaced none
// of them.
func (p RehearsedPlace) pausedAt(from, to time.Duration) bool {
	for _, a := range p.Allocs {
		before := len(a.Ran) > 0 && a.Ran[0].From <= from
		if before && a.End != endStopped && a.End != endComplete {
			return false
		}
		if !before && a.Replaces != "" && a.Placed <= to {
			return false
		}
	}
	return true
}

// Twice is how long more than one instance of the place ran.
func (p RehearsedPlace) Twice() time.Duration {
	var twice, until, counted time.Duration
	for _, w := range p.runWindows() {
		from, to := max(w.From, counted), min(until, w.To)
		twice, counted = twice+max(0, to-from), max(counted, to)
		until = max(until, w.To)
	}
	return twice
}

// demandEnd is when the place was no longer asked for: when the last of it stopped
// running, if all that filled it is complete or was stopped.
func (p RehearsedPlace) demandEnd(lasted time.Duration) time.Duration {
	var end time.Duration
	for _, a := range p.Allocs {
		if a.End != endComplete && a.End != endStopped {
			return lasted
		}
		for _, w := range a.Ran {
			end = max(end, w.To)
		}
	}
	return end
}

// Story says where and when the place was replaced, for people.
func (p RehearsedPlace) Story() string {
	var parts []string
	for i, a := range p.Allocs {
		switch {
		case i == 0 && len(p.Allocs) == 1 && (a.End == "" || a.End == endComplete):
			continue
		case i == 0 && a.End == "":
			continue
		case i == 0:
			parts = append(parts, fmt.Sprintf("%s at %s", a.End, stamp(a.Ended)))
		case a.End == "":
			parts = append(parts, fmt.Sprintf("on %s from %s", a.Edge, stamp(a.Placed)))
		default:
			parts = append(parts, fmt.Sprintf("on %s %s to %s", a.Edge, stamp(a.Placed), stamp(a.Ended)))
		}
	}
	return strings.Join(parts, "; ")
}

// Rehearse makes a rehearsal of the history of its run. everyNode are the jobs that run one
// instance on each node: all of their allocations have the index 0.
func Rehearse(r *history.Reader, everyNode ...fleet.JobID) (*Rehearsal, error) {
	c, err := collect(r)
	if err != nil {
		return nil, err
	}
	out := &Rehearsal{
		Name: c.header.Name, Repeat: c.header.Repeat, Lasted: c.lasted, Edges: c.header.Edges,
		Outcome: c.sum.Outcome, Reasons: c.sum.Reasons, Broken: c.violations,
	}
	for _, f := range c.faults {
		out.Faults = append(out.Faults, RehearsedFault{f.formatKind(), f.Targets, f.from, f.to})
	}
	places := map[string]*RehearsedPlace{}
	for _, f := range c.cluster.allocs {
		name := f.name
		if slices.Contains(everyNode, f.job) {
			name = strings.TrimSuffix(name, "[0]") + "[" + c.cluster.names[f.node] + "]"
		}
		p := places[name]
		if p == nil {
			p = &RehearsedPlace{Name: name, Job: f.job}
			places[name] = p
		}
		p.Allocs = append(p.Allocs, c.rehearsedAlloc(f))
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		p := places[name]
		slices.SortFunc(p.Allocs, func(a, b RehearsedAlloc) int {
			return cmp.Or(cmp.Compare(a.Placed, b.Placed), cmp.Compare(a.ID, b.ID))
		})
		out.Places = append(out.Places, *p)
	}
	return out, nil
}

func (c *run) rehearsedAlloc(f *allocFact) RehearsedAlloc {
	a := RehearsedAlloc{ID: f.id, Edge: c.cluster.names[f.node], Replaces: f.previous, Placed: f.from}
	if m := c.members[a.Edge]; m != nil && m.tasks[f.id] != nil {
		for _, s := range m.tasks[f.id].spans {
			if n := len(a.Ran); n > 0 && a.Ran[n-1].To == s.from {
				a.Ran[n-1].To = s.to // more or fewer of its tasks, but never none
			} else {
				a.Ran = append(a.Ran, Window{s.from, s.to})
			}
		}
	}
	for _, s := range f.status.spans {
		if s.state == fleet.ClientUnknown {
			a.Unseen = append(a.Unseen, Window{s.from, s.to})
			a.Showed = append(a.Showed, ShownStatus{fleet.ClientUnknown, Window{s.from, s.to}})
		}
	}
	if f.hasEnded() {
		a.End, a.Ended = f.ends[len(f.ends)-1].how, f.to
	}
	for i, end := range f.ends { // given up for lost, until somebody knows better
		if end.how != endLost {
			continue
		}
		until := c.lasted
		if i+1 < len(f.ends) {
			until = f.ends[i+1].at
		}
		for _, s := range f.status.spans {
			if s.from >= end.at {
				until = min(until, s.from)
			}
		}
		a.Unseen = append(a.Unseen, Window{end.at, until})
		if a.End != endLost { // else it is how it ended
			a.Showed = append(a.Showed, ShownStatus{fleet.ClientLost, Window{end.at, until}})
		}
	}
	slices.SortFunc(a.Unseen, func(x, y Window) int { return cmp.Compare(x.From, y.From) })
	return a
}
