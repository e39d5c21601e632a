package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// Snapshot is the observed state of the fleet at the time At of the run.
type Snapshot struct {
	At time.Duration
	// Hubs reports whether a hub answered. Then Nodes (by the edge's name) and Allocs are
	// its answer; otherwise they are empty.
	Hubs   bool
	Nodes  map[string]fleet.NodeStatus
	Allocs []fleet.Alloc
	// Tasks has, by edge, the allocation of each task that runs on its machine. An edge
	// that could not be asked is absent; one that is off has an empty list.
	Tasks map[string][]fleet.AllocID
}

// ExpectationChecker compares the observations of a run with its expectations. Observations
// are added in the order of time, by one goroutine at a time.
type ExpectationChecker struct {
	s      Schedule
	status []expectationStatus // by index of the expectation

	firstRunning map[string]fleet.AllocID      // by name, the first allocation of that name that ran
	allocs       map[fleet.AllocID]allocRecord // all allocations seen so far
	replacements map[fleet.AllocID]bool        // allocations that replace one of the same job version
	starts       map[taskKey]int               // number of starts of each task
	taskRestarts map[fleet.AllocID]int         // starts of an allocation's tasks after their first
	refused      map[fleet.Code]time.Duration  // time of the first refusal with each code
}

// allocRecord is the job of an allocation, and the newest version that was observed of it.
type allocRecord struct {
	job     fleet.JobID
	version uint64
}

// taskKey names a task of an allocation.
type taskKey struct {
	alloc fleet.AllocID
	task  string
}

// expectationStatus is the state of one expectation after the observations so far.
type expectationStatus struct {
	met    bool   // by the observations so far
	broken bool   // the expectation can no longer be met
	seen   bool   // an observation was relevant to the expectation
	why    string // the last relevant observation, in words
}

// RunOutcome is the end of a run, as far as expectations need it.
type RunOutcome struct {
	// Quiet is the time from the last fault until the fleet was quiet; -1: it never was.
	Quiet time.Duration
	// Void names the faults that had no effect.
	Void []string
}

// Verdict states whether an expectation was met; Why is the reason if it was not.
type Verdict struct {
	Expectation Expectation
	Met         bool
	Why         string
}

// NewExpectationChecker returns a checker of the schedule's expectations, without observations.
func NewExpectationChecker(s Schedule) *ExpectationChecker {
	return &ExpectationChecker{
		s: s, status: make([]expectationStatus, len(s.Expect)),
		firstRunning: map[string]fleet.AllocID{}, allocs: map[fleet.AllocID]allocRecord{}, replacements: map[fleet.AllocID]bool{},
		starts: map[taskKey]int{}, taskRestarts: map[fleet.AllocID]int{}, refused: map[fleet.Code]time.Duration{},
	}
}

// AddTaskStart records the start of a task.
func (j *ExpectationChecker) AddTaskStart(alloc fleet.AllocID, task string) {
	key := taskKey{alloc, task}
	if j.starts[key]++; j.starts[key] > 1 {
		j.taskRestarts[alloc]++
	}
}

// AddRefusal records that a session or a message was refused with the code.
func (j *ExpectationChecker) AddRefusal(at time.Duration, code fleet.Code) {
	if _, before := j.refused[code]; !before {
		j.refused[code] = at
	}
}

// AddSnapshot records the state of the fleet and evaluates all expectations with it.
func (j *ExpectationChecker) AddSnapshot(l Snapshot) {
	j.recordAllocs(l)
	for i, e := range j.s.Expect {
		holds, what, known := j.evaluateExpectation(e, l)
		if known {
			j.status[i].recordOutcome(e, l.At, holds, what)
		}
	}
}

// recordOutcome updates the status with one evaluation of the expectation: holds at the time
// at; what describes the observation. Observations outside of the time of e change nothing.
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

// recordAllocs records the first running allocation of each name, and all replacements: later
// snapshots may lack them.
func (j *ExpectationChecker) recordAllocs(l Snapshot) {
	for _, a := range l.Allocs {
		if _, known := j.firstRunning[a.Name]; !known && a.ClientStatus == fleet.ClientRunning {
			j.firstRunning[a.Name] = a.ID
		}
		j.allocs[a.ID] = allocRecord{a.JobID, max(j.allocs[a.ID].version, a.JobVersion)}
	}
	for _, a := range l.Allocs {
		// An allocation of a newer version is an update, not a replacement.
		if before, known := j.allocs[a.PreviousAllocation]; known && before.version == a.JobVersion {
			j.replacements[a.ID] = true
		}
	}
}

// isOfExpectedJob reports whether an allocation belongs to the job of the expectation. It is
// true for every allocation if the expectation names no job.
func (j *ExpectationChecker) isOfExpectedJob(e Expectation, alloc fleet.AllocID) bool {
	return e.Job == "" || j.allocs[alloc].job == e.Job
}

// evaluateExpectation reports whether the expectation holds in the snapshot, and the observation
// in words. known is false if the snapshot lacks the information.
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

// matchesCount compares n with Count as Compare asks.
func (e Expectation) matchesCount(n int) bool {
	switch e.Compare {
	case AtLeast:
		return n >= e.Count
	case AtMost:
		return n <= e.Count
	}
	return n == e.Count
}

// hasClientStatus reports whether an allocation has the client status, or is held. For pending,
// running and unknown its desired status must not be terminal either.
func hasClientStatus(a fleet.Alloc, status string) bool {
	switch status {
	case fleet.ClientPending, fleet.ClientRunning, fleet.ClientUnknown:
		return a.ClientStatus == status && !a.ServerTerminal()
	case AllocHeld:
		return a.Held != nil && !a.Terminal()
	}
	return a.ClientStatus == status
}

// countStatus returns the number of the job's allocations with the client status (hasClientStatus).
func countStatus(allocs []fleet.Alloc, job fleet.JobID, status string) int {
	n := 0
	for _, a := range allocs {
		if a.JobID == job && hasClientStatus(a, status) {
			n++
		}
	}
	return n
}

// evaluateAlloc reports whether the allocations with the expectation's name match its State, and
// describes them.
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

// Verdicts returns a verdict for each expectation, in their order, at the end of the run.
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

// wasRefused evaluates an expectation of ExpectRefused, and describes the first refusal.
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
