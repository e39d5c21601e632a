package check

import (
	"cmp"
	"sync"
	"time"

	"skerry/fleet"
)

// Limits are the bounds by which a Monitor judges. Zero fields have defaults that fit the daemons' defaults.
type Limits struct {
	// Heal bounds the time from the last fault, or the last change of a job, until
	// everything is settled: a back-off at its cap, a handshake on a slow path, an
	// election, a replay, and the jobs' own delays. 0: 4 min.
	Heal time.Duration
	// Ready bounds how long a node with a session may be other than ready, and
	// Evaluate how long an evaluation that is due may be pending, both without
	// faults. 0: 2 min; a lost delivery of an evaluation is repeated after 1 min.
	Ready, Evaluate time.Duration
	// Deliver bounds how long a journaled row takes to be applied over a link that
	// works. 0: 1 min.
	Deliver time.Duration
	// Start bounds the time from an agent's start until the tasks that a reboot ended
	// run again. 0: 10 s.
	Start time.Duration
	// Runner bounds the time from a task's start or end until its row is journaled. 0: 15 s.
	Runner time.Duration
	// Refusal bounds the time from the commit of a refusal until the edge gets it. 0: 10 s.
	Refusal time.Duration
	// TTL is the shortest heartbeat TTL that hubs give an edge. 0: 10 s.
	TTL time.Duration
	// LongestTTL is the longest heartbeat TTL that hubs give an edge. 0: TTL.
	LongestTTL time.Duration
	// Slack is the resolution of observations: two polls, and the time that an answer
	// takes. 0: 3 s.
	Slack time.Duration
	// JournalBytes bounds the unacknowledged rows in an edge's journal. 0: 64 MiB.
	JournalBytes int64
	// Linearize bounds the search for a linearization of a piece of one job's history,
	// in steps. 0: 300,000.
	Linearize int
	// Growth times the usage at a run's beginning, plus Goroutines, HeapBytes or Files,
	// bounds the usage later in the run. 0: 1.5, 40 goroutines, 96 MiB of heap,
	// 16 files.
	Growth     float64
	Goroutines int
	HeapBytes  int64
	Files      int
}

// withDefaults returns the limits with the default of each field that is zero.
func (l Limits) withDefaults() Limits {
	return Limits{
		Heal: cmp.Or(l.Heal, 4*time.Minute), Ready: cmp.Or(l.Ready, 2*time.Minute), Evaluate: cmp.Or(l.Evaluate, 2*time.Minute),
		Deliver: cmp.Or(l.Deliver, time.Minute), Start: cmp.Or(l.Start, 10*time.Second), Runner: cmp.Or(l.Runner, 15*time.Second),
		Refusal: cmp.Or(l.Refusal, 10*time.Second), TTL: cmp.Or(l.TTL, 10*time.Second), Slack: cmp.Or(l.Slack, 3*time.Second),
		LongestTTL:   cmp.Or(l.LongestTTL, cmp.Or(l.TTL, 10*time.Second)),
		JournalBytes: cmp.Or(l.JournalBytes, 64<<20), Linearize: cmp.Or(l.Linearize, 300_000),
		Growth: cmp.Or(l.Growth, 1.5), Goroutines: cmp.Or(l.Goroutines, 40), HeapBytes: cmp.Or(l.HeapBytes, 96<<20), Files: cmp.Or(l.Files, 16),
	}
}

// checker judges one aspect of a run. The Monitor calls its functions under its lock, after the context was
// updated from the observation. Functions may be nil.
type checker struct {
	state     any                         // the checker's memory
	applied   func(*runContext, *Applied) // each application of an entry, by any hub
	entry     func(*runContext, *Applied) // an entry with its effects, from the first hub that reports them
	hub       func(*runContext, *Hub)
	edge      func(*runContext, *Edge)
	agent     func(*runContext, *Process) // of an edge
	process   func(*runContext, *Process) // of a hub
	task      func(*runContext, *Task)
	request   func(*runContext, *Request)
	refused   func(*runContext, *Refused)
	dial      func(*runContext, *Dial)
	usage     func(*runContext, *Usage)
	snapshot  func(*runContext, *Snapshot)
	operation func(*runContext, *Observation) // of a client
	variable  func(*runContext, *VariableOperation)
	held      func(*runContext, *HeldVariables)
	identity  func(*runContext, *HeldIdentities)
	delivered func(*runContext, *DeliveredVariables)
	search    func(*runContext, *SecretSearch)
	probe     func(*runContext, *Probe)
	answer    func(*runContext, *Answer)
	audit     func(*runContext, *Audit)
	siteCode  func(*runContext, *SiteCodeUse)
	dispatch  func(*runContext, *DispatchCall)
	given     func(*runContext, *GivenInput)
	fault     func(*runContext, *Fault)
	rewind    func(*runContext)                 // a fault with the effect Rewinds begins or ends
	tick      func(*runContext)                 // about once a second of the run's time
	finish    func(*runContext, *FleetSnapshot) // once, with the snapshot at the run's end
}

// callFor calls one of a checker's functions with a part of an observation, if both exist.
func callFor[T any](f func(*runContext, *T), s *runContext, seen *T) {
	if f != nil && seen != nil {
		f(s, seen)
	}
}

// handleObservation calls the checker's functions for the parts that the observation has.
func (c *checker) handleObservation(s *runContext, o *Observation) {
	callFor(c.applied, s, o.Applied)
	if o.Applied != nil && o.Applied.Effects != nil {
		callFor(c.entry, s, o.Applied)
	}
	callFor(c.hub, s, o.Hub)
	callFor(c.edge, s, o.Edge)
	if o.Process != nil && o.Process.Edge {
		callFor(c.agent, s, o.Process)
	} else {
		callFor(c.process, s, o.Process)
	}
	callFor(c.task, s, o.Task)
	callFor(c.request, s, o.Request)
	callFor(c.refused, s, o.Refused)
	callFor(c.dial, s, o.Dial)
	callFor(c.usage, s, o.Usage)
	callFor(c.snapshot, s, o.Snapshot)
	callFor(c.variable, s, o.Variable)
	callFor(c.held, s, o.Held)
	callFor(c.identity, s, o.Identity)
	callFor(c.delivered, s, o.Delivered)
	callFor(c.search, s, o.Search)
	callFor(c.probe, s, o.Probe)
	callFor(c.answer, s, o.Answer)
	callFor(c.audit, s, o.Audit)
	callFor(c.siteCode, s, o.SiteCode)
	callFor(c.dispatch, s, o.Dispatch)
	callFor(c.given, s, o.Given)
	if o.Operation != nil {
		callFor(c.operation, s, o)
	}
	callFor(c.fault, s, o.Fault)
	if c.rewind != nil && o.Fault.hasRewindEffect() {
		c.rewind(s)
	}
}

// Monitor judges a run while it goes on. Its methods may be called from any goroutine.
type Monitor struct {
	mu       sync.Mutex
	run      *runContext
	checkers []checker
	given    int  // number of violations that were returned
	over     bool // Finish was called
}

// tickEvery is the interval, in the run's time, at which checkers judge overdue facts.
const tickEvery = time.Second

// NewMonitor returns a Monitor for a run that begins now, with all checkers.
func NewMonitor(limits Limits) *Monitor {
	run := newRunContext(limits.withDefaults())
	return &Monitor{run: run, checkers: []checker{
		run.nodes.newChecker(), newReplicas(), newDelivery(), newHistories(), newStops(), newBoots(), newInstances(), newStanding(), newDecisions(),
		newDeadlines(), newRefusals(), newRowsDue(), newDials(), newUsages(), newClients(), newSightings(), newRollouts(), newLaunches(), newDispatches(),
		newDrains(), newWindows(), newCatalogue(), newRunning(), newHolds(), newSecrets(), newIdentities(), newPermits(), newAudits(), newSiteCodes(),
	}}
}

// Observe judges an observation and returns the violations that were found since the last call.
func (m *Monitor) Observe(o Observation) []Violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.run
	s.learnObservation(&o)
	for i := range m.checkers {
		m.checkers[i].handleObservation(s, &o)
	}
	m.tickCheckers()
	return m.takeNewViolations()
}

// tickCheckers calls the checkers' ticks and drops old facts, when tickEvery has passed since the last time.
func (m *Monitor) tickCheckers() {
	if m.run.now < m.run.ticked+tickEvery {
		return
	}
	m.run.ticked = m.run.now
	for _, c := range m.checkers {
		if c.tick != nil {
			c.tick(m.run)
		}
	}
	m.run.forgetEndedFacts()
}

// Wants reports whether no hub has reported the effects of this entry yet. Callers then have to observe them;
// one hub's report is enough.
func (m *Monitor) Wants(index fleet.Index) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return index > m.run.effectsIndex
}

// Quiet judges a snapshot of a fleet that has nothing left to do, in the middle of a run. It returns the
// violations that were found since the last call.
func (m *Monitor) Quiet(at time.Duration, p FleetSnapshot) []Violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judgeSnapshot(at, p)
	return m.takeNewViolations()
}

// judgeSnapshot judges a snapshot with Quiet, and records its violations at the time at. An empty snapshot is
// not judged.
func (m *Monitor) judgeSnapshot(at time.Duration, p FleetSnapshot) {
	m.run.now = max(m.run.now, at)
	if len(p.Hubs)+len(p.Edges) == 0 {
		return
	}
	for _, i := range Checked() {
		m.run.countJudgement(i)
	}
	for _, v := range Quiet(p) {
		v.At = m.run.now
		m.run.addViolation(v)
	}
}

// Finish ends the run: it judges facts that only the end shows, and returns all violations. p is a snapshot of the
// quiet fleet, or zero if the fleet is not quiet; then nothing that needs a quiet fleet is judged. Only the first call
// judges.
func (m *Monitor) Finish(at time.Duration, p FleetSnapshot) []Violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.over = true
		m.judgeSnapshot(at, p)
		m.run.ticked = 0
		m.tickCheckers()
		for _, c := range m.checkers {
			if c.finish != nil {
				c.finish(m.run, &p)
			}
		}
	}
	m.given = len(m.run.found)
	return append([]Violation(nil), m.run.found...)
}

// Violations returns the violations that were found so far, of each invariant only the first keptViolations.
// Verdicts has the full numbers.
func (m *Monitor) Violations() []Violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Violation(nil), m.run.found...)
}

// Verdict is the result of a run for one invariant.
type Verdict struct {
	Invariant Invariant
	Judged    uint64 // how often it was judged; 0: the run shows nothing about it
	Broken    uint64 // number of violations
	Undecided uint64 // judgements without a result; they do not count as passed
}

// Verdicts returns the verdict of each invariant, in the order of their numbers.
func (m *Monitor) Verdicts() []Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	var vs []Verdict
	for _, i := range All() {
		v := m.run.verdicts[i]
		v.Invariant = i
		vs = append(vs, v)
	}
	return vs
}

// takeNewViolations returns the violations that were not returned before, and marks them as returned.
func (m *Monitor) takeNewViolations() []Violation {
	vs := m.run.found[m.given:]
	m.given = len(m.run.found)
	return append([]Violation(nil), vs...)
}
