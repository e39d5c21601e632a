package check

import (
	"cmp"
	"sync"
	"time"

	"skerry/fleet"
)

// Limits are the bounds that a Monitor judges by. Zero fields have defaults, which
// fit the daemons' own.
type Limits struct {
	// Heal is how long after the last fault, or the last change of a job, everything
	// has to be settled: a back-off at its cap, a handshake on a slow path, an
	// election, a replay, and what the jobs' own delays add. 0: 4 min.
	Heal time.Duration
	// Ready bounds how long a node with a session may stay short of ready, and
	// Evaluate how long an evaluation that is due may be pending, without faults.
	// 0: 2 min, and 2 min: a delivery that got lost is taken back after one.
	Ready, Evaluate time.Duration
	// Deliver bounds how long a journaled row takes to be applied over a link that
	// works. 0: 1 min.
	Deliver time.Duration
	// Start bounds how long after its agent's start a task that a boot ended takes to
	// run again. 0: 10 s.
	Start time.Duration
	// Runner bounds how long after a task's end the journal has a row of it. 0: 15 s.
	Runner time.Duration
	// Refusal bounds how long after a refusal was committed its edge is told. 0: 10 s.
	Refusal time.Duration
	// TTL is the least time that an edge is given between two beats. 0: 10 s.
	TTL time.Duration
	// LongestTTL is the most that any edge is given. 0: TTL.
	LongestTTL time.Duration
	// Slack is the resolution of what is observed: two polls, and what an answer
	// takes. 0: 3 s.
	Slack time.Duration
	// JournalBytes is the edges' bound of unacknowledged rows. 0: 64 MiB.
	JournalBytes int64
	// Linearize bounds the search for a linearization of a piece of one job's history,
	// in steps. 0: 300,000.
	Linearize int
	// Growth is how much more than at first may be in use at the end, as a factor, and
	// the rest what may come on top of it whatever was there. 0: 1.5, 40 goroutines,
	// 96 MiB of heap, 16 files.
	Growth     float64
	Goroutines int
	HeapBytes  int64
	Files      int
}

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

// checker judges one thing of what is observed. Its functions are called under the Monitor's
// lock, when the context has learned the observation; those that it lacks are nil.
type checker struct {
	state     any                         // what it remembers
	applied   func(*runContext, *Applied) // of every hub
	entry     func(*runContext, *Applied) // with its effects, of the hub that tells of them first
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
	fault     func(*runContext, *Fault)
	rewind    func(*runContext)                 // hubs begin or end to be put back to an older copy
	tick      func(*runContext)                 // about once a second of the run's time
	finish    func(*runContext, *FleetSnapshot) // once, with the snapshot at the run's end
}

// callFor calls a function of a checker with what an observation has for it.
func callFor[T any](f func(*runContext, *T), s *runContext, seen *T) {
	if f != nil && seen != nil {
		f(s, seen)
	}
}

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
	if o.Operation != nil {
		callFor(c.operation, s, o)
	}
	callFor(c.fault, s, o.Fault)
	if c.rewind != nil && o.Fault.hasRewindEffect() {
		c.rewind(s)
	}
}

// Monitor judges a run as it goes on. It may be used from any goroutine.
type Monitor struct {
	mu       sync.Mutex
	run      *runContext
	checkers []checker
	given    int // violations that were handed out
	over     bool
}

// tickEvery is how often checkers judge what has become overdue.
const tickEvery = time.Second

// NewMonitor makes a Monitor of a run that begins.
func NewMonitor(limits Limits) *Monitor {
	run := newRunContext(limits.withDefaults())
	return &Monitor{run: run, checkers: []checker{
		run.nodes.newChecker(), newReplicas(), newDelivery(), newHistories(), newStops(), newBoots(), newInstances(), newStanding(), newDecisions(),
		newDeadlines(), newRefusals(), newRowsDue(), newDials(), newUsages(), newClients(), newSightings(), newRollouts(), newLaunches(),
		newDrains(), newWindows(), newCatalogue(), newRunning(),
	}}
}

// Observe takes what was seen and returns the violations that it shows.
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

// tickCheckers calls the checkers' ticks when a second has passed.
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

// Wants reports whether the effects of an entry are still to be told: one hub's
// word is enough.
func (m *Monitor) Wants(index fleet.Index) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return index > m.run.effectsIndex
}

// Quiet judges a snapshot of a fleet that has nothing left to do, in the middle of
// a run.
func (m *Monitor) Quiet(at time.Duration, p FleetSnapshot) []Violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judgeSnapshot(at, p)
	return m.takeNewViolations()
}

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

// Finish judges what only the end of the run shows. The fleet is quiet; without a
// snapshot (zero) it is not, and what needs quiet is not judged. It returns all
// violations of the run.
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

// Violations are all that were seen so far. Of each invariant only the first ones
// are kept; Broken has the numbers.
func (m *Monitor) Violations() []Violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Violation(nil), m.run.found...)
}

// Verdict is how an invariant fared.
type Verdict struct {
	Invariant Invariant
	Judged    uint64 // how often it was looked at; 0: the run says nothing of it
	Broken    uint64
	Undecided uint64 // looks that came to nothing: they are no pass
}

// Verdicts has every invariant, by number.
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

func (m *Monitor) takeNewViolations() []Violation {
	vs := m.run.found[m.given:]
	m.given = len(m.run.found)
	return append([]Violation(nil), vs...)
}
