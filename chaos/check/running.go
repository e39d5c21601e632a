package check

import (
	"time"

	"skerry/fleet"
)

// running judges, by what tasks really do, for how long and how often they run: no longer
// than max_run_duration, not again after a success of a batch job, and not while one that
// has to end by stop_on_client_after may still run.
type running struct {
	begun map[fleet.AllocID]*lifetime
}

// lifetime is for how long the machine of an allocation had run when its first task began.
type lifetime struct {
	at, on time.Duration
	ends   int // of its agent or machine since, each of which may forget some of it
	told   bool
}

func newRunning() checker {
	t := &running{begun: map[fleet.AllocID]*lifetime{}}
	return checker{state: t, task: t.judgeTaskStart, agent: t.recordAgentEnd, rewind: func(*runContext) { clear(t.begun) }, tick: t.judgeRunDurations}
}

func (t *running) recordAgentEnd(s *runContext, p *Process) {
	if p.What == ProcessStart {
		return
	}
	for key := range s.machines.ensureMachine(p.Name).tasks {
		if l := t.begun[key.Alloc]; l != nil {
			l.ends++
		}
	}
}

func (t *running) judgeTaskStart(s *runContext, o *Task) {
	if o.What != TaskStarted {
		return
	}
	m, f := s.machines.ensureMachine(o.Edge), s.registry.allocs[o.Alloc]
	m.updateUptime(s.now)
	if t.begun[o.Alloc] == nil {
		t.begun[o.Alloc] = &lifetime{at: s.now, on: m.on}
	}
	if f == nil || f.stale || s.isClonedMachine(o.Edge) {
		return
	}
	t.judgeBatchRestart(s, m, f, o)
	t.judgeReplacementStart(s, m, f)
}

// journaled is how long after its end a task's success is known to survive a power cut.
const journaled = 5 * time.Second

// judgeBatchRestart judges a task that is started: of a batch job none is that had succeeded.
func (t *running) judgeBatchRestart(s *runContext, m *machine, f *allocFact, o *Task) {
	truth := m.tasks[TaskKey{o.Alloc, o.Task}]
	if j := s.registry.jobs[f.alloc.JobID]; j == nil || j.job.Type != fleet.JobTypeBatch || truth.succeeded < 0 {
		return
	}
	s.countJudgement(Instances)
	if m.hasDamageSince(truth.succeeded-s.limits.Heal) || s.faults.hasFaultSince(s.now, truth.succeeded-journaled, m.name, Damages, Chokes) ||
		s.faults.hasFaultSince(s.now, truth.succeeded-journaled, m.name, Halts) && s.now-truth.succeeded < journaled {
		return
	}
	s.reportViolation(Instances, m.name, "task %s of a batch job is started again: it had succeeded at %s", TaskKey{o.Alloc, o.Task}, truth.succeeded)
}

// judgeReplacementStart judges the start of a replacement for what is away: what it replaces, and has stop_on_client_after,
// has ended. A drain and an operator win over the absence: what they ask for is replaced at once.
func (t *running) judgeReplacementStart(s *runContext, m *machine, f *allocFact) {
	old := s.registry.allocs[f.alloc.PreviousAllocation]
	if old == nil || old.stale || s.faults.hasBeenRewound() || old.alloc.DesiredTransition.Migrate {
		return
	}
	if c := old.alloc.ClientStatus; c != fleet.ClientUnknown && c != fleet.ClientLost {
		return // its edge was there, and was told to stop it
	}
	if _, limited := old.stopAfter(); !limited || old.alloc.NodeID == f.alloc.NodeID {
		return
	}
	s.countJudgement(StopDeadline)
	for _, other := range s.machines.by {
		if other.node != old.alloc.NodeID || other.name == m.name || s.isClonedMachine(other.name) {
			continue
		}
		if other.agent < 0 || other.hasDamageSince(s.now-s.limits.Heal) || other.connected >= 0 ||
			s.faults.hasFaultSince(s.now, other.lastHeartbeat-s.limits.Heal, other.name, Halts, Reboots, Chokes, MovesTime, EndsTasks) {
			continue
		}
		for key, truth := range other.tasks {
			if key.Alloc == old.alloc.ID && truth.live > 0 {
				s.reportViolation(StopDeadline, other.name, "task %s still runs while its replacement %s is started on %s: that has to wait until stop_on_client_after and the task's kill_timeout are over",
					key, fleet.Short(f.alloc.ID), m.name)
			}
		}
	}
}

// ranFor is how long ago the first task of an allocation began.
func (m *machine) ranFor(alloc fleet.AllocID, now time.Duration) time.Duration {
	longest := time.Duration(0)
	for key, truth := range m.tasks {
		if key.Alloc == alloc {
			longest = max(longest, now-truth.begun)
		}
	}
	return longest
}

// judgeRunDurations looks for what has run for longer than its max_run_duration.
func (t *running) judgeRunDurations(s *runContext) {
	for _, m := range s.machines.by {
		if m.agent < 0 || s.isClonedMachine(m.name) {
			continue
		}
		m.updateUptime(s.now)
		for key, truth := range m.tasks {
			l, f := t.begun[key.Alloc], s.registry.allocs[key.Alloc]
			if truth.live > 0 && l != nil && !l.told && f != nil && f.group != nil && f.group.MaxRunDuration != nil {
				t.judgeMaxRunDuration(s, m, key, f, l)
			}
		}
	}
	for id, l := range t.begun {
		if f := s.registry.allocs[id]; f == nil && s.now-l.at > keptAllocs {
			delete(t.begun, id)
		}
	}
}

// runNote is how much of an allocation's time each end of its agent may make forgotten.
func runNote(limit time.Duration) time.Duration { return min(10*time.Minute, limit/10) }

func (t *running) judgeMaxRunDuration(s *runContext, m *machine, key TaskKey, f *allocFact, l *lifetime) {
	s.countJudgement(StopDeadline)
	limit := *f.group.MaxRunDuration
	slack := 2*s.limits.Slack + f.killTimeout(key.Task) + time.Duration(l.ends)*(runNote(limit)+s.limits.Slack)
	ran := m.on - l.on
	if ran < limit+slack || s.now-m.agent < slack || m.hasDamageSince(l.at) ||
		s.faults.hasFaultSince(s.now, s.now-slack, m.name, Halts, Chokes, EndsTasks, Damages) {
		return
	}
	l.told = true
	s.reportViolation(StopDeadline, m.name, "task %s has run for %s of its machine's time: its max_run_duration is %s (%d ends of its agent since)",
		key, ran, limit, l.ends)
}
