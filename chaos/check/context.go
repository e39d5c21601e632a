package check

import (
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
)

// keptViolations bounds how many violations of one invariant are kept; the others
// are counted.
const keptViolations = 20

// forgetEvery is how often facts that are over are forgotten.
const forgetEvery = 5 * time.Minute

// runContext is what the checkers know in common.
type runContext struct {
	limits       Limits
	now          time.Duration // newest observation
	ticked       time.Duration
	forgot       time.Duration
	effectsIndex fleet.Index // newest entry whose effects are known
	entries      bool        // somebody tells of entries; where nobody does, journals have to do
	faults       activeFaults
	registry     fleetRegistry
	machines     *machines
	nodes        nodes             // by what the log says of them, which a checker of their own judges first
	tally        map[Branch]uint64 // how often branches were reached
	term         uint64
	led          time.Duration                    // since when in this term: deadlines begin anew with it
	newRows      []nodeRows                       // rows that the observation applied for the first time
	applied      recent[entryName, time.Duration] // when entries were applied first
	requests     []asked                          // of the last while
	decided      time.Duration                    // when what the observation tells was first known: now, unless it is a replay

	found    []Violation
	verdicts [len(invariants)]Verdict
}

func newRunContext(limits Limits) *runContext {
	return &runContext{
		limits: limits, faults: newActiveFaults(), registry: newFleetRegistry(), machines: newMachines(), nodes: nodes{},
		tally: map[Branch]uint64{}, applied: newRecent[entryName, time.Duration](keptApplied),
	}
}

// learnObservation takes over what an observation says of the fleet, before checkers see it. It
// completes the observation, and takes out of it what is no news.
func (s *runContext) learnObservation(o *Observation) {
	s.now = max(s.now, o.At)
	s.decided = s.now
	if s.faults.isRewindActive() { // what hubs show is between two pasts
		o.Applied, o.Hub = nil, nil
	}
	switch {
	case o.Fault != nil:
		o.Fault = s.faults.recordFault(o.Fault, s.now)
		if o.Fault.hasRewindEffect() {
			s.effectsIndex = 0
			s.registry.acceptOlderViews()
		}
	case o.Applied != nil:
		s.learnTerm(o.Applied.Term)
		s.learnEntryEffects(o)
	case o.Hub != nil:
		s.faults.hubs[o.Hub.Name] = true
		s.registry.recordHubView(o.Hub, s.effectsIndex, s.now)
	case o.Edge != nil && o.Edge.NodeID != "":
		s.registry.recordNodeName(o.Edge.NodeID, o.Edge.Name)
	case o.Process != nil:
		s.faults.recordProcessState(o.Process, s.now)
	case o.Job != nil:
		s.registry.recordJob(o.Job, s.now)
	case o.Request != nil:
		s.requests = append(s.requests, asked{*o.Request, s.now})
	}
	s.machines.updateMachines(s, o)
}

func (s *runContext) learnTerm(term uint64) {
	if term <= s.term {
		return
	}
	if s.term > 0 {
		s.countBranch(BranchLeaderChanged)
	}
	s.term, s.led = term, s.now
}

// asked is what a person asked for that ends a task.
type asked struct {
	Request
	at time.Duration
}

// keptRequests is for how long a person's wish explains a stop.
const keptRequests = 10 * time.Minute

// hasRequest reports whether a person asked for something of late.
func (s *runContext) hasRequest(of func(asked) bool) bool { return slices.ContainsFunc(s.requests, of) }

// learnEntryEffects takes over an entry's effects, of the hub that tells of them first.
func (s *runContext) learnEntryEffects(o *Observation) {
	s.faults.hubs[o.Applied.Hub] = true
	if o.Applied.Effects == nil {
		return
	}
	if o.Applied.Index <= s.effectsIndex {
		told := *o.Applied
		told.Effects = nil
		o.Applied = &told
		return
	}
	if s.effectsIndex == 0 { // hubs that were put back show what they have before it, each of another age
		s.registry.markAllocsStale()
	}
	s.effectsIndex, s.entries = o.Applied.Index, true
	s.decided = s.firstAppliedAt(o.Applied)
	s.registry.recordEffects(o.Applied.Effects, s.now)
	s.registry.recordEndedAllocs(o.Applied.Effects.Batches)
}

// forgetEndedFacts lets go of what no checker will ask for again.
func (s *runContext) forgetEndedFacts() {
	s.requests = slices.DeleteFunc(s.requests, func(r asked) bool { return s.now-r.at > keptRequests })
	if s.now-s.forgot >= forgetEvery {
		s.forgot = s.now
		s.registry.forgetEndedWork(s.now)
	}
}

// countBranch counts a branch that was reached.
func (s *runContext) countBranch(b Branch) { s.tally[b]++ }

// countJudgement counts that an invariant was judged.
func (s *runContext) countJudgement(i Invariant) { s.verdicts[i].Judged++ }

// reportViolation notes a violation.
func (s *runContext) reportViolation(i Invariant, where string, format string, args ...any) {
	s.addViolation(Violation{Invariant: i, At: s.now, Where: where, Message: fmt.Sprintf(format, args...)})
}

// reportWithEvidence notes a violation with lines that show it.
func (s *runContext) reportWithEvidence(i Invariant, where string, evidence []string, format string, args ...any) {
	if len(evidence) > maxEvidence {
		evidence = evidence[len(evidence)-maxEvidence:]
	}
	s.addViolation(Violation{Invariant: i, At: s.now, Where: where, Message: fmt.Sprintf(format, args...), Evidence: evidence})
}

func (s *runContext) addViolation(v Violation) {
	verdict := &s.verdicts[v.Invariant]
	verdict.Broken++
	verdict.Judged = max(verdict.Judged, verdict.Broken)
	if verdict.Broken <= keptViolations {
		s.found = append(s.found, v)
	}
}

// entryName names an entry. Number and term alone do not: hubs that were put back give
// them again.
type entryName struct {
	index   fleet.Index
	term    uint64
	command string
}

// keptApplied bounds how many entries are known; the oldest go.
const keptApplied = 4 * keptEntries

// firstAppliedAt is when an entry that is applied now was applied first. Hubs that were put back
// apply what their copy of the log holds again, all of it in a moment and long after it was decided.
func (s *runContext) firstAppliedAt(a *Applied) time.Duration {
	e := entryName{a.Index, a.Term, a.Command}
	if _, again := s.applied.known[e]; !again {
		s.applied.addEntry(e, s.now)
	}
	return s.applied.known[e]
}

// recent is a map of the newest entries, up to a bound.
type recent[K comparable, V any] struct {
	most  int
	known map[K]V
	order []K
}

func newRecent[K comparable, V any](most int) recent[K, V] {
	return recent[K, V]{most: most, known: map[K]V{}}
}

func (r *recent[K, V]) addEntry(key K, value V) {
	if _, again := r.known[key]; !again {
		r.order = append(r.order, key)
	}
	r.known[key] = value
	if len(r.order) > r.most {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
}
