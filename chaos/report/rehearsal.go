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

// ShownStatus is what the hubs called an allocation that was out of their sight, and when.
type ShownStatus struct {
	Status string // unknown or lost
	Window
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
	sortWindows(ws)
	return ws
}

func sortWindows(ws []Window) {
	slices.SortFunc(ws, func(a, b Window) int { return cmp.Compare(a.From, b.From) })
}

// Down is how long nothing of the place ran, though it should have.
func (p RehearsedPlace) Down(lasted time.Duration) time.Duration {
	return totalLength(p.downWindows(lasted))
}

func totalLength(ws []Window) (sum time.Duration) {
	for _, w := range ws {
		sum += w.To - w.From
	}
	return sum
}

// downWindows are when nothing of the place ran between its first start and its end,
// or the end of the rehearsal, though it should have.
func (p RehearsedPlace) downWindows(lasted time.Duration) (down []Window) {
	ws := p.runWindows()
	if len(ws) == 0 {
		return nil
	}
	end := p.demandEnd(lasted)
	until := ws[0].From
	for _, w := range ws {
		if from := min(w.From, end); from > until && !p.pausedAt(until, from) {
			down = append(down, Window{until, from})
		}
		until = max(until, min(w.To, end))
	}
	if end > until {
		down = append(down, Window{until, end})
	}
	return down
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

// JobLow is how few of a job's instances ran.
type JobLow struct {
	Job       fleet.JobID
	Instances int
	Most      int // that ever ran
	Least     int // that ran at a time
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
		var down []Window
		for _, p := range byJob[id] {
			down = append(down, p.downWindows(r.Lasted)...)
			if len(p.runWindows()) > 0 {
				low.Most++
			}
		}
		low.countDown(down)
		lows = append(lows, low)
	}
	return lows
}

// countDown takes the windows in which any of the job's instances was down.
func (l *JobLow) countDown(down []Window) {
	sortWindows(down)
	l.Least = l.Most
	for i, w := range down {
		running := l.Most
		for _, other := range down[:i+1] {
			if other.To > w.From {
				running--
			}
		}
		l.Least = min(l.Least, running)
		if n := len(l.Below); n > 0 && w.From <= l.Below[n-1].To {
			l.Below[n-1].To = max(l.Below[n-1].To, w.To)
		} else {
			l.Below = append(l.Below, w)
		}
	}
}

// String says it in a line.
func (l JobLow) String() string {
	if len(l.Below) == 0 {
		return fmt.Sprintf("%s: %s, never fewer than %d running", l.Job, history.Plural(l.Instances, "instance"), l.Least)
	}
	return fmt.Sprintf("%s: %s, at least %d running; fewer than %d for %s in all, from %s on",
		l.Job, history.Plural(l.Instances, "instance"), l.Least, l.Most, stamp(totalLength(l.Below)), stamp(l.Below[0].From))
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
		name := f.Name
		if slices.Contains(everyNode, f.JobID) {
			name = strings.TrimSuffix(name, "[0]") + "[" + c.cluster.names[f.NodeID] + "]"
		}
		p := places[name]
		if p == nil {
			p = &RehearsedPlace{Name: name, Job: f.JobID}
			places[name] = p
		}
		p.Allocs = append(p.Allocs, c.rehearsedAlloc(f))
	}
	head := func(name string) string { return strings.SplitN(name, "[", 2)[0] }
	inOrder := func(a, b string) int { // [2] before [10]
		return cmp.Or(cmp.Compare(head(a), head(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	for _, name := range slices.SortedFunc(maps.Keys(places), inOrder) {
		p := places[name]
		slices.SortFunc(p.Allocs, func(a, b RehearsedAlloc) int {
			return cmp.Or(cmp.Compare(a.Placed, b.Placed), cmp.Compare(a.ID, b.ID))
		})
		out.Places = append(out.Places, *p)
	}
	return out, nil
}

func (c *run) rehearsedAlloc(f *allocFact) RehearsedAlloc {
	a := RehearsedAlloc{ID: f.ID, Edge: c.cluster.names[f.NodeID], Replaces: f.PreviousAllocation, Placed: f.from}
	if m := c.members[a.Edge]; m != nil && m.tasks[f.ID] != nil {
		for _, s := range m.tasks[f.ID].spans {
			a.Ran = append(a.Ran, Window{s.from, s.to})
		}
	}
	for i, s := range f.status.spans {
		if i == len(f.status.spans)-1 && slices.Contains([]string{endComplete, endFailed, endLost, endStopped}, s.state) {
			a.End, a.Ended = s.state, s.from
		}
		if s.state != fleet.ClientUnknown && s.state != endLost { // the latter until somebody knows better
			continue
		}
		a.Unseen = append(a.Unseen, Window{s.from, s.to})
		if a.End == "" { // else it is how it ended
			a.Showed = append(a.Showed, ShownStatus{s.state, Window{s.from, s.to}})
		}
	}
	return a
}
