package check

import (
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
)

// keptViolations bounds how many violations of one invariant are kept. Further ones are only counted.
const keptViolations = 20

// forgetEvery is the interval at which the registry drops ended allocations and stopped jobs.
const forgetEvery = 5 * time.Minute

// runContext is the state that all checkers of one Monitor share: the knowledge about the fleet and its faults, and
// the violations found. The Monitor's lock guards it.
type runContext struct {
	limits       Limits
	now          time.Duration          // newest observation
	ticked       time.Duration          // when the checkers' ticks were called last
	forgot       time.Duration          // when the registry dropped ended work last
	effectsIndex fleet.Index            // newest entry whose effects are known
	heard        map[string]fleet.Index // newest entry of each hub since hubs were put back to an older copy
	entries      bool                   // effects of entries are observed; without them checkers judge journals
	faults       activeFaults
	registry     fleetRegistry
	machines     *machines
	nodes        nodes             // each node after the newest entry; its checker is the first of all checkers
	tally        map[Branch]uint64 // how often branches were reached
	term         uint64
	led          time.Duration                    // when this term was first seen: a new leader restarts all deadlines
	newRows      []nodeRows                       // rows that the present observation applies for the first time
	applied      recent[entryName, time.Duration] // when entries were applied first
	requests     []asked                          // of the last keptRequests
	holds        map[siteName]*siteHold           // stops on site that hold, by edge and name
	decided      time.Duration                    // when the observed entry was applied first; now, unless it is applied again

	found    []Violation
	verdicts [len(invariants)]Verdict
}

// newRunContext returns the state of a run that has not begun. The defaults of limits must be filled in.
func newRunContext(limits Limits) *runContext {
	return &runContext{
		limits: limits, faults: newActiveFaults(), registry: newFleetRegistry(), machines: newMachines(), nodes: nodes{},
		tally: map[Branch]uint64{}, holds: map[siteName]*siteHold{}, applied: newRecent[entryName, time.Duration](keptApplied),
		heard: map[string]fleet.Index{},
	}
}

// learnObservation updates the shared state from an observation, before checkers see it. It changes o: it adds
// the beginning of a fault to its end, and removes effects that are known already and all hub data while hubs
// are being rewound.
func (s *runContext) learnObservation(o *Observation) {
	s.now = max(s.now, o.At)
	s.decided = s.now
	if s.faults.isRewindActive() { // hubs show a mix of two pasts
		o.Applied, o.Hub = nil, nil
	}
	switch {
	case o.Fault != nil:
		o.Fault = s.faults.recordFault(o.Fault, s.now)
		if o.Fault.hasRewindEffect() {
			s.effectsIndex = 0
			clear(s.heard)
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
		s.recordSiteRequest(o.Request)
	}
	s.machines.updateMachines(s, o)
}

// learnTerm records a newer leadership term and its time. It counts BranchLeaderChanged except for the first term.
func (s *runContext) learnTerm(term uint64) {
	if term <= s.term {
		return
	}
	if s.term > 0 {
		s.countBranch(BranchLeaderChanged)
	}
	s.term, s.led = term, s.now
}

// asked is a request of a person, with the time at which it was observed.
type asked struct {
	Request
	at time.Duration
}

// keptRequests is the time during which a person's request explains a stop.
const keptRequests = 10 * time.Minute

// hasRequest reports whether of is true for a request of the last keptRequests.
func (s *runContext) hasRequest(of func(asked) bool) bool { return slices.ContainsFunc(s.requests, of) }

// learnEntryEffects updates the registry with an entry's effects. Only the first hub that reports an entry's
// effects counts: for later ones o gets a copy of Applied without effects. It also sets s.decided.
func (s *runContext) learnEntryEffects(o *Observation) {
	s.faults.hubs[o.Applied.Hub] = true
	before, known := s.heard[o.Applied.Hub]
	s.heard[o.Applied.Hub] = o.Applied.Index
	if o.Applied.Effects == nil {
		return
	}
	// A hub that begins behind the newest known entry leaves a gap, which others fill: hubs begin at their own snapshots.
	gap := s.effectsIndex > 0 && (!known || before > s.effectsIndex)
	if gap || o.Applied.Index <= s.effectsIndex {
		told := *o.Applied
		if told.Effects = nil; gap {
			told.behindGap = o.Applied.Effects
		}
		o.Applied = &told
		return
	}
	if s.effectsIndex == 0 { // restored hubs show older states first, each of a different age
		s.registry.markAllocsStale()
	}
	s.effectsIndex, s.entries = o.Applied.Index, true
	s.decided = s.firstAppliedAt(o.Applied)
	s.registry.recordEffects(o.Applied.Effects, s.now)
	s.registry.recordEndedAllocs(o.Applied.Effects.Batches)
}

// isBehindGap reports whether a hub has applied an entry whose effects are not known yet: it waits for those before it.
func (s *runContext) isBehindGap() bool {
	for _, index := range s.heard {
		if index > s.effectsIndex {
			return true
		}
	}
	return false
}

// forgetEndedFacts drops requests older than keptRequests, and every forgetEvery the registry's ended work.
func (s *runContext) forgetEndedFacts() {
	s.requests = slices.DeleteFunc(s.requests, func(r asked) bool { return s.now-r.at > keptRequests })
	if s.now-s.forgot >= forgetEvery {
		s.forgot = s.now
		s.registry.forgetEndedWork(s.now)
	}
}

// countBranch adds one to the count of a branch that the run reached.
func (s *runContext) countBranch(b Branch) { s.tally[b]++ }

// countJudgement adds one to the number of times that an invariant was judged.
func (s *runContext) countJudgement(i Invariant) { s.verdicts[i].Judged++ }

// reportViolation records a violation at the present time. where is the hub, edge or job that shows it.
func (s *runContext) reportViolation(i Invariant, where string, format string, args ...any) {
	s.addViolation(Violation{Invariant: i, At: s.now, Where: where, Message: fmt.Sprintf(format, args...)})
}

// reportWithEvidence records a violation as reportViolation does, with the last maxEvidence lines of evidence.
func (s *runContext) reportWithEvidence(i Invariant, where string, evidence []string, format string, args ...any) {
	if len(evidence) > maxEvidence {
		evidence = evidence[len(evidence)-maxEvidence:]
	}
	s.addViolation(Violation{Invariant: i, At: s.now, Where: where, Message: fmt.Sprintf(format, args...), Evidence: evidence})
}

// addViolation counts a violation, and keeps it among the first keptViolations of its invariant.
func (s *runContext) addViolation(v Violation) {
	verdict := &s.verdicts[v.Invariant]
	verdict.Broken++
	verdict.Judged = max(verdict.Judged, verdict.Broken)
	if verdict.Broken <= keptViolations {
		s.found = append(s.found, v)
	}
}

// entryName identifies an entry. Index and term alone do not: hubs that were rewound use them again for other
// commands.
type entryName struct {
	index   fleet.Index
	term    uint64
	command string
}

// keptApplied bounds how many entries firstAppliedAt remembers. The oldest are dropped.
const keptApplied = 4 * keptEntries

// firstAppliedAt returns when an entry was applied first, and records now for a new one. Rewound hubs apply the
// entries of their copy again, all within a moment and long after the decisions.
func (s *runContext) firstAppliedAt(a *Applied) time.Duration {
	e := entryName{a.Index, a.Term, a.Command}
	if _, again := s.applied.known[e]; !again {
		s.applied.addEntry(e, s.now)
	}
	return s.applied.known[e]
}

// recent is a map that holds at most `most` entries: it drops the one that was added first.
type recent[K comparable, V any] struct {
	most  int
	known map[K]V
	order []K
}

// newRecent returns an empty map that holds at most `most` entries.
func newRecent[K comparable, V any](most int) recent[K, V] {
	return recent[K, V]{most: most, known: map[K]V{}}
}

// addEntry sets the value of a key, and drops the oldest key if there are too many. A key that is set again keeps its
// age.
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
