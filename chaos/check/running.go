package check

import (
	"time"

	"skerry/fleet"
)

// running checks how long and how often tasks really run: no longer than max_run_duration, not again after a success
// of a batch job, and no replacement beside a task that stop_on_client_after must end first.
type running struct {
	begun map[fleet.AllocID]*lifetime
}

// lifetime is when the first task of an allocation began (at), and the uptime of its machine then (on).
type lifetime struct {
	at, on time.Duration
	ends   int // ends of the agent or machine since: each may lose up to runNote of the recorded time
	told   bool
	// heldOn is the machine's uptime when the allocation was stopped on site; 0 if it is not held.
	heldOn time.Duration
}

// newRunning returns the checker of how long and how often tasks run.
func newRunning() checker {
	t := &running{begun: map[fleet.AllocID]*lifetime{}}
	return checker{state: t, task: t.judgeTaskStart, request: t.recordSiteStop, agent: t.recordAgentEnd, rewind: func(*runContext) { clear(t.begun) }, tick: t.judgeRunDurations}
}

// recordAgentEnd counts an end of an agent or its machine for each allocation there.
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

// recordSiteStop records when an allocation was stopped on site.
func (t *running) recordSiteStop(s *runContext, r *Request) {
	l := t.begun[r.Alloc]
	if r.What != StopRecorded || l == nil {
		return
	}
	m := s.machines.ensureMachine(r.Edge)
	m.updateUptime(s.now)
	l.heldOn = m.on
}

// judgeTaskStart records when an allocation's first task started, and judges a start of a batch task and of a
// replacement.
func (t *running) judgeTaskStart(s *runContext, o *Task) {
	if o.What != TaskStarted {
		return
	}
	m, f := s.machines.ensureMachine(o.Edge), s.registry.allocs[o.Alloc]
	m.updateUptime(s.now)
	switch l := t.begun[o.Alloc]; {
	case l == nil:
		t.begun[o.Alloc] = &lifetime{at: s.now, on: m.on}
	case l.heldOn > 0: // the time of a stop on site does not count
		l.on += m.on - l.heldOn
		l.heldOn = 0
	}
	if f == nil || f.stale || s.isClonedMachine(o.Edge) {
		return
	}
	t.judgeBatchRestart(s, m, f, o)
	t.judgeReplacementStart(s, m, f)
}

// journaled bounds the time after a task's end in which a power cut may still lose its record.
const journaled = 5 * time.Second

// judgeBatchRestart reports a start of a batch task that had succeeded, unless a fault may have lost the record of the
// success.
func (t *running) judgeBatchRestart(s *runContext, m *machine, f *allocFact, o *Task) {
	truth := m.tasks[TaskKey{o.Alloc, o.Task}]
	if j := s.registry.jobs[f.alloc.JobID]; j == nil || j.job.Type != fleet.JobTypeBatch || j.job.RunsAtEdge() || truth.succeeded < 0 {
		return
	}
	s.countJudgement(Instances)
	if m.hasDamageSince(truth.succeeded-s.limits.Heal) || s.faults.hasFaultSince(s.now, truth.succeeded-journaled, m.name, Damages, Chokes) ||
		s.faults.hasFaultSince(s.now, truth.succeeded-journaled, m.name, Halts) && s.now-truth.succeeded < journaled {
		return
	}
	s.reportViolation(Instances, m.name, "task %s of a batch job is started again: it had succeeded at %s", TaskKey{o.Alloc, o.Task}, truth.succeeded)
}

// judgeReplacementStart reports a replacement that starts while a task of the unknown or lost allocation that it
// replaces still runs, if that has stop_on_client_after. Drains and operators are excused, because they replace at
// once.
func (t *running) judgeReplacementStart(s *runContext, m *machine, f *allocFact) {
	old := s.registry.allocs[f.alloc.PreviousAllocation]
	if old == nil || old.stale || s.faults.hasBeenRewound() || old.alloc.DesiredTransition.Migrate {
		return
	}
	status := old.alloc.ClientStatus
	if old.stopped > 0 { // its edge may have gone since
		status = old.stoppedAs
	}
	if status != fleet.ClientUnknown && status != fleet.ClientLost {
		return // its edge was connected: a hub stopped it
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
				s.reportViolation(StopDeadline, other.name, "task %s still runs while its replacement %s is started on %s: the replacement must wait until stop_on_client_after and the task's kill_timeout are over",
					key, fleet.Short(f.alloc.ID), m.name)
			}
		}
	}
}

// ranFor returns the time since the first task of an allocation was started; 0: none was.
func (m *machine) ranFor(alloc fleet.AllocID, now time.Duration) time.Duration {
	longest := time.Duration(0)
	for key, truth := range m.tasks {
		if key.Alloc == alloc {
			longest = max(longest, now-truth.begun)
		}
	}
	return longest
}

// judgeRunDurations judges each running task of a group with max_run_duration, and drops allocations that the
// registry has dropped.
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

// runTimeLoss returns how much of an allocation's recorded run time an end of its agent may lose.
func runTimeLoss(limit time.Duration) time.Duration { return min(10*time.Minute, limit/10) }

// judgeMaxRunDuration reports, once, a task that runs longer than its max_run_duration in its machine's uptime,
// with slack for kills and the kill_timeout.
func (t *running) judgeMaxRunDuration(s *runContext, m *machine, key TaskKey, f *allocFact, l *lifetime) {
	s.countJudgement(StopDeadline)
	limit := *f.group.MaxRunDuration
	slack := 2*s.limits.Slack + f.killTimeout(key.Task) + time.Duration(l.ends)*(runTimeLoss(limit)+s.limits.Slack)
	ran := m.on - l.on
	if ran < limit+slack || s.now-m.agent < slack || m.hasDamageSince(l.at) ||
		s.faults.hasFaultSince(s.now, s.now-slack, m.name, Halts, Chokes, EndsTasks, Damages) {
		return
	}
	l.told = true
	s.reportViolation(StopDeadline, m.name, "task %s has run for %s of its machine's time: its max_run_duration is %s (%d ends of its agent since)",
		key, ran, limit, l.ends)
}
