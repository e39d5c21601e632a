package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// Snapshot is what is seen of the fleet at one time, since the schedule's beginning.
type Snapshot struct {
	At time.Duration
	// Hubs is whether a hub could be asked; then Nodes (by edge's name) and Allocs are
	// what it said, and else nothing.
	Hubs   bool
	Nodes  map[string]fleet.NodeStatus
	Allocs []fleet.Alloc
	// Tasks are those that run on each edge's machine: the allocation of each. An edge
	// that is absent could not be asked; one that is off runs none.
	Tasks map[string][]fleet.AllocID
}

// ExpectationChecker holds what is seen of a run against what is expected of it. It is told of
// everything in the order of time, by one goroutine at a time.
type ExpectationChecker struct {
	s      Schedule
	status []expectationStatus // of each expectation

	firstRunning map[string]fleet.AllocID      // the one that ran first under each name
	allocs       map[fleet.AllocID]allocRecord // all that there ever were
	replacements map[fleet.AllocID]bool        // of one of the same version
	starts       map[taskKey]int
	taskRestarts map[fleet.AllocID]int        // starts of its tasks that were not their first
	refused      map[fleet.Code]time.Duration // when first
}

// allocRecord is what is remembered of an allocation.
type allocRecord struct {
	job     fleet.JobID
	version uint64
}

type taskKey struct {
	alloc fleet.AllocID
	task  string
}

// expectationStatus is how an expectation stands.
type expectationStatus struct {
	met    bool
	broken bool // it can no longer be met
	seen   bool // something was seen that it is about
	why    string
}

// RunOutcome is how a run ended.
type RunOutcome struct {
	// Quiet is how long after the last fault all was settled; -1: it never was.
	Quiet time.Duration
	// Void names what never really hit.
	Void []string
}

// Verdict is whether an expectation was met, and why not.
type Verdict struct {
	Expectation Expectation
	Met         bool
	Why         string
}

// NewExpectationChecker judges a run of the schedule.
func NewExpectationChecker(s Schedule) *ExpectationChecker {
	return &ExpectationChecker{
		s: s, status: make([]expectationStatus, len(s.Expect)),
		firstRunning: map[string]fleet.AllocID{}, allocs: map[fleet.AllocID]allocRecord{}, replacements: map[fleet.AllocID]bool{},
		starts: map[taskKey]int{}, taskRestarts: map[fleet.AllocID]int{}, refused: map[fleet.Code]time.Duration{},
	}
}

// AddTaskStart tells that a task was started.
func (j *ExpectationChecker) AddTaskStart(alloc fleet.AllocID, task string) {
	key := taskKey{alloc, task}
	if j.starts[key]++; j.starts[key] > 1 {
		j.taskRestarts[alloc]++
	}
}

// AddRefusal tells that a session or a message was refused.
func (j *ExpectationChecker) AddRefusal(at time.Duration, code fleet.Code) {
	if _, before := j.refused[code]; !before {
		j.refused[code] = at
	}
}

// AddSnapshot tells what is seen.
func (j *ExpectationChecker) AddSnapshot(l Snapshot) {
	j.recordAllocs(l)
	for i, e := range j.s.Expect {
		holds, what, known := j.evaluateExpectation(e, l)
		if known {
			j.status[i].recordOutcome(e, l.At, holds, what)
		}
	}
}

// recordOutcome takes what an expectation says of one moment.
func (s *expectationStatus) recordOutcome(e Expectation, at time.Duration, holds bool, what string) {
	moment := fmt.Sprintf("at %s %s", formatDuration(at.Round(time.Second)), what)
	switch e.When {
	case AtEnd:
		s.seen, s.met, s.why = true, holds, moment
	case At:
		if at >= e.Time && !s.seen {
			s.seen, s.met, s.why = true, holds, moment
		}
	case By:
		if at <= e.Time && !s.met {
			s.seen, s.met, s.why = true, holds, moment
		}
	case Always:
		if e.Time <= at && at <= e.Until && !s.broken {
			s.seen, s.met, s.broken, s.why = true, holds, !holds, moment
		}
	case Never:
		if !s.broken {
			s.seen, s.met, s.broken, s.why = true, !holds, holds, moment
		}
	}
}

// recordAllocs keeps what later looks do not show.
func (j *ExpectationChecker) recordAllocs(l Snapshot) {
	for _, a := range l.Allocs {
		if _, known := j.firstRunning[a.Name]; !known && a.ClientStatus == fleet.ClientRunning {
			j.firstRunning[a.Name] = a.ID
		}
		j.allocs[a.ID] = allocRecord{a.JobID, max(j.allocs[a.ID].version, a.JobVersion)}
	}
	for _, a := range l.Allocs {
		// One of a newer version took its place for being that.
		if before, known := j.allocs[a.PreviousAllocation]; known && before.version == a.JobVersion {
			j.replacements[a.ID] = true
		}
	}
}

// isOfExpectedJob reports whether an allocation is of the job that the expectation names, if any.
func (j *ExpectationChecker) isOfExpectedJob(e Expectation, alloc fleet.AllocID) bool {
	return e.Job == "" || j.allocs[alloc].job == e.Job
}

// evaluateExpectation reports whether the expectation holds at this look, what is there instead, and
// whether the look can tell.
func (j *ExpectationChecker) evaluateExpectation(e Expectation, l Snapshot) (holds bool, what string, known bool) {
	switch e.Subject {
	case ExpectJob:
		n := countStatus(l.Allocs, e.Job, e.State)
		return e.matchesCount(n), fmt.Sprintf("%d of %s are %s", n, e.Job, e.State), l.Hubs
	case ExpectAlloc:
		holds, what = j.evaluateAlloc(e, l.Allocs)
		return holds, what, l.Hubs
	case ExpectNode:
		status, there := l.Nodes[e.Name]
		return string(status) == e.State, fmt.Sprintf("%s is %s", e.Name, status), l.Hubs && there
	case ExpectEdge:
		tasks, there := l.Tasks[e.Name]
		n := 0
		for _, alloc := range tasks {
			if j.isOfExpectedJob(e, alloc) {
				n++
			}
		}
		return e.matchesCount(n), fmt.Sprintf("%s runs %d", e.Name, n), there
	case ExpectReplaced:
		n := 0
		for alloc := range j.replacements {
			if j.isOfExpectedJob(e, alloc) {
				n++
			}
		}
		return e.matchesCount(n), fmt.Sprintf("%d were replaced", n), true
	case ExpectRestarted:
		n := 0
		for alloc, again := range j.taskRestarts {
			if j.isOfExpectedJob(e, alloc) {
				n += again
			}
		}
		return e.matchesCount(n), fmt.Sprintf("%d tasks were started again", n), true
	}
	return false, "", false
}

func (e Expectation) matchesCount(n int) bool {
	switch e.Compare {
	case AtLeast:
		return n >= e.Count
	case AtMost:
		return n <= e.Count
	}
	return n == e.Count
}

// hasClientStatus reports whether an allocation is one that has the status: where that is no
// end, only if the hubs still want it.
func hasClientStatus(a fleet.Alloc, status string) bool {
	switch status {
	case fleet.ClientPending, fleet.ClientRunning, fleet.ClientUnknown:
		return a.ClientStatus == status && !a.ServerTerminal()
	}
	return a.ClientStatus == status
}

func countStatus(allocs []fleet.Alloc, job fleet.JobID, status string) int {
	n := 0
	for _, a := range allocs {
		if a.JobID == job && hasClientStatus(a, status) {
			n++
		}
	}
	return n
}

// evaluateAlloc judges those under one name.
func (j *ExpectationChecker) evaluateAlloc(e Expectation, allocs []fleet.Alloc) (holds bool, what string) {
	var running []fleet.AllocID
	var all []string
	has := false
	for _, a := range allocs {
		if a.Name != e.Name {
			continue
		}
		if hasClientStatus(a, fleet.ClientRunning) {
			running = append(running, a.ID)
		}
		has = has || hasClientStatus(a, e.State)
		all = append(all, fleet.Short(a.ID)+" "+a.DesiredStatus+"/"+a.ClientStatus)
	}
	first, ran := j.firstRunning[e.Name]
	what = fmt.Sprintf("under %s there is %s; first was %s", e.Name, strings.Join(all, ", "), fleet.Short(first))
	switch e.State {
	case AllocKept:
		return ran && slices.Equal(running, []fleet.AllocID{first}), what
	case AllocReplaced:
		return ran && len(running) == 1 && running[0] != first, what
	case AllocStopped:
		return len(running) == 0, what
	}
	return has, what
}

// Verdicts returns a verdict for each expectation.
func (j *ExpectationChecker) Verdicts(end RunOutcome) []Verdict {
	verdicts := make([]Verdict, len(j.s.Expect))
	for i, e := range j.s.Expect {
		v := Verdict{Expectation: e, Met: j.status[i].met, Why: j.status[i].why}
		switch {
		case e.Subject == ExpectRefused:
			v.Met, v.Why = j.wasRefused(e)
		case e.Subject == ExpectQuiet:
			v.Met, v.Why = end.Quiet >= 0 && end.Quiet <= e.Within, "quiet after "+formatDuration(end.Quiet)
			if end.Quiet < 0 {
				v.Why = "never quiet"
			}
		case e.Subject == ExpectVoid:
			v.Met, v.Why = len(end.Void) == 0, "never hit: "+strings.Join(end.Void, ", ")
		case !j.status[i].seen:
			v.Met, v.Why = false, "nothing was seen of it in that time"
		}
		if v.Met {
			v.Why = ""
		}
		verdicts[i] = v
	}
	return verdicts
}

func (j *ExpectationChecker) wasRefused(e Expectation) (met bool, why string) {
	at, refused := j.refused[fleet.Code(e.State)]
	why = "nothing was refused as " + e.State
	if refused {
		why = fmt.Sprintf("refused as %s at %s", e.State, formatDuration(at.Round(time.Second)))
	}
	switch e.When {
	case Never:
		return !refused, why
	case By:
		return refused && at <= e.Time, why
	}
	return refused, why
}
