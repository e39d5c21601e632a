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

// Rehearsal is the result of a simulated run of a user's own jobs: which instances keep running, are replaced
// or are lost, where and when.
type Rehearsal struct {
	Name     string // of the job file, or of the scenario
	Repeat   string // the command that runs it again
	Lasted   time.Duration
	Edges    []string
	Faults   []RehearsedFault
	Places   []RehearsedPlace // sorted by name
	Outcome  history.Outcome  // of the run: whether all invariants held
	Reasons  []string         // why it has this outcome
	Broken   []check.Violation
	Notes    []string // remarks on the simulation
	Unplaced []string // instances that could not be placed, with the reason
}

// RehearsedFault is a fault of the simulated run: its kind with parameters, its targets, and when it held.
type RehearsedFault struct {
	What     string
	On       []string
	From, To time.Duration
}

// RehearsedPlace is one instance that a job asks for, with its allocations. Its name is JOB.GROUP[INDEX], or
// JOB.GROUP[EDGE] for a job that runs one instance on each node.
type RehearsedPlace struct {
	Name   string
	Job    fleet.JobID
	Allocs []RehearsedAlloc // sorted by the time of their placement
}

// RehearsedAlloc is one allocation of an instance over time.
type RehearsedAlloc struct {
	ID       fleet.AllocID
	Edge     string
	Replaces fleet.AllocID // the allocation that it replaces; "": none
	Placed   time.Duration
	// Ran is when its tasks really ran, and Unseen when the hubs called it unknown
	// or lost.
	Ran, Unseen []Window
	Showed      []ShownStatus // Unseen with the status, without an end by loss
	// End is its last status (complete, failed, lost, stopped), and Ended the time of
	// that; "": it had not ended at the run's end.
	End   string
	Ended time.Duration
}

// ShownStatus is a time in which the hubs called an allocation unknown or lost.
type ShownStatus struct {
	Status string // unknown or lost
	Window
}

// Window is the time between From and To, since the run's start.
type Window struct{ From, To time.Duration }

// Fate is what happened to an instance by the end of a rehearsal.
type Fate string

const (
	KeptRunning  Fate = "kept running"  // the original ran all the time
	Interrupted  Fate = "interrupted"   // the original runs at the end, but was down for a while
	CameBack     Fate = "original kept" // the original runs at the end, and had a replacement for a while
	WasReplaced  Fate = "replaced"      // another allocation runs at the end
	Completed    Fate = "completed"     // an allocation of it is complete
	Stopped      Fate = "stopped"       // none runs, and the job asks for none
	Failed       Fate = "failed"        // the last allocation failed, and has no replacement
	Lost         Fate = "lost"          // the last allocation was lost, and has no replacement
	NeverStarted Fate = "never started" // no task of it ever ran
	StillOut     Fate = "out of sight"  // it runs at the end, and the hubs call it unknown or lost
	DownAtEnd    Fate = "down"          // no task of it runs at the end, though one should
)

// Fate returns what happened to the instance by the end of a rehearsal of length lasted.
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

// currentAlloc returns the newest allocation that has not ended; nil: there is none.
func (p RehearsedPlace) currentAlloc() *RehearsedAlloc {
	for i := range slices.Backward(p.Allocs) {
		if p.Allocs[i].End == "" {
			return &p.Allocs[i]
		}
	}
	return nil
}

// runsAt reports whether a task of the allocation really ran at a time.
func (a *RehearsedAlloc) runsAt(at time.Duration) bool {
	return slices.ContainsFunc(a.Ran, func(w Window) bool { return w.From <= at && w.To >= at })
}

// runWindows returns the windows in which tasks of any of the instance's allocations ran, sorted by beginning.
// They may overlap.
func (p RehearsedPlace) runWindows() []Window {
	var ws []Window
	for _, a := range p.Allocs {
		ws = append(ws, a.Ran...)
	}
	sortWindows(ws)
	return ws
}

// sortWindows sorts windows in place by their beginning.
func sortWindows(ws []Window) {
	slices.SortFunc(ws, func(a, b Window) int { return cmp.Compare(a.From, b.From) })
}

// Down returns for how long no task of the instance ran, though one should have.
func (p RehearsedPlace) Down(lasted time.Duration) time.Duration {
	return totalLength(p.downWindows(lasted))
}

// totalLength returns the sum of the windows' lengths.
func totalLength(ws []Window) (sum time.Duration) {
	for _, w := range ws {
		sum += w.To - w.From
	}
	return sum
}

// downWindows returns when no task of the instance ran, though one should have: between its first start and the
// end of its demand (demandEnd), without the times in which the job did not ask for it.
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

// pausedAt reports whether the job did not ask for the instance between two times: all earlier allocations were
// stopped or complete, and none that was placed until then replaces one.
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

// Twice returns for how long more than one allocation of the instance ran.
func (p RehearsedPlace) Twice() time.Duration {
	var twice, until, counted time.Duration
	for _, w := range p.runWindows() {
		from, to := max(w.From, counted), min(until, w.To)
		twice, counted = twice+max(0, to-from), max(counted, to)
		until = max(until, w.To)
	}
	return twice
}

// demandEnd returns when the job no longer asked for the instance: the last end of a task where all its
// allocations are complete or stopped, else the end of the rehearsal.
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

// Story says when the instance's first allocation ended, and where and when its replacements ran, for people.
// It is "" where one allocation ran to the end or is complete.
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

// JobLow is the least number of a job's instances that ran at a time.
type JobLow struct {
	Job       fleet.JobID
	Instances int
	Most      int // number of instances that ever ran
	Least     int // least number of instances that ran at a time
	// Below is when fewer than Most ran. Instances that are complete or stopped count as running.
	Below []Window
}

// Lows returns the JobLow of each job, sorted by job.
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

// countDown sets Least and Below from the windows in which any instance of the job was down. It sorts down.
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

// String returns the numbers in one line.
func (l JobLow) String() string {
	instances := history.Plural(l.Instances, "instance")
	if l.Most < l.Instances {
		instances += fmt.Sprintf(", %d of which never started", l.Instances-l.Most)
	}
	if len(l.Below) == 0 {
		return fmt.Sprintf("%s: %s, never fewer than %d running", l.Job, instances, l.Least)
	}
	return fmt.Sprintf("%s: %s, at least %d running; fewer than %d for %s in all, from %s on",
		l.Job, instances, l.Least, l.Most, stamp(totalLength(l.Below)), stamp(l.Below[0].From))
}

// Rehearse reads a history to its end and returns the rehearsal of its run. everyNode are the jobs that run one
// instance on each node: their allocations all have the index 0, and are named by their edge.
func Rehearse(r *history.Reader, everyNode ...fleet.JobID) (*Rehearsal, error) {
	c, err := collectRun(r)
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
	for _, p := range places {
		slices.SortFunc(p.Allocs, func(a, b RehearsedAlloc) int {
			return cmp.Or(cmp.Compare(a.Placed, b.Placed), cmp.Compare(a.ID, b.ID))
		})
		out.Places = append(out.Places, *p)
	}
	out.sortPlaces()
	return out, nil
}

// AddUnplaced adds those of a job's instances that never had an allocation: they never started.
func (r *Rehearsal) AddUnplaced(job fleet.JobID, names ...string) {
	known := map[string]bool{}
	for _, p := range r.Places {
		known[p.Name] = true
	}
	for _, name := range names {
		if !known[name] {
			r.Places = append(r.Places, RehearsedPlace{Name: name, Job: job})
		}
	}
	r.sortPlaces()
}

// sortPlaces sorts the instances by name, [2] before [10].
func (r *Rehearsal) sortPlaces() {
	group := func(p RehearsedPlace) string { return strings.SplitN(p.Name, "[", 2)[0] }
	slices.SortFunc(r.Places, func(a, b RehearsedPlace) int {
		return cmp.Or(cmp.Compare(group(a), group(b)), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
}

// rehearsedAlloc returns the rehearsal's form of an allocation: when its tasks ran, when hubs did not see it,
// and how it ended.
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
		if s.state != fleet.ClientUnknown && s.state != endLost { // a lost one may come back
			continue
		}
		a.Unseen = append(a.Unseen, Window{s.from, s.to})
		if a.End == "" { // else the span is its end
			a.Showed = append(a.Showed, ShownStatus{s.state, Window{s.from, s.to}})
		}
	}
	return a
}
