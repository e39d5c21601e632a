package check

import (
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
)

// stops judges each task that an agent really stopped: a hub that the edge could hear, a person,
// another task of the allocation or stop_on_client_after asked for it. It also judges that
// stop_on_client_after stops what it has to.
type stops struct {
	pending []stop
	late    map[TaskKey]bool // deadlines that were told of
}

// stop is a task that was stopped; whoever wanted it may be heard of only later.
type stop struct {
	at    time.Duration
	m     *machine
	key   TaskKey
	heard time.Duration // until when its edge may have heard a hub
	alone time.Duration // for how long its machine may have run without a hub
	// session is the newest that its edge was seen to have, or to try, or that was
	// committed.
	session uint64
	// unmarked says that the last answered beat may not have been written down, and that
	// the agent that knew of it was killed.
	unmarked bool
	killed   bool // its agent was, since the last answered beat
}

func newStops() checker {
	t := &stops{late: map[TaskKey]bool{}}
	return checker{state: t, task: t.recordTaskStop, tick: t.judgeDueStops, finish: t.judgeAllStops}
}

func (t *stops) recordTaskStop(s *runContext, o *Task) {
	key := TaskKey{o.Alloc, o.Task}
	if o.What == TaskStarted {
		delete(t.late, key)
	}
	if o.What != TaskStopped || s.faults.isRewindActive() { // till it dies, a hub wants what is forgotten with it
		return
	}
	m := s.machines.ensureMachine(o.Edge)
	took := fleet.DefaultKillTimeout // it was decided so long ago at most
	if f := s.registry.allocs[key.Alloc]; f != nil {
		took = f.killTimeout(key.Task)
	}
	took += s.limits.Slack
	began, killed := m.killedSince(s.now, took)
	t.pending = append(t.pending, stop{
		at: s.now, m: m, key: key, heard: m.latestHubContact(s), alone: m.aloneAtMost(s.now, took),
		session: max(m.session, m.opened), killed: killed,
		unmarked: killed && s.faults.hasFaultSince(s.now, began, m.name, Chokes),
	})
}

// latestHubContact is until when a hub's word may have reached the edge. Of sessions with hubs that
// are being put back nobody tells.
func (m *machine) latestHubContact(s *runContext) time.Duration {
	if s.faults.isRewindActive() || m.connected >= 0 || m.linked == 0 && !s.faults.hasFaultNow(m.name, Severs) {
		return s.now
	}
	return m.linked + s.limits.Slack
}

func (t *stops) judgeDueStops(s *runContext) {
	t.pending = slices.DeleteFunc(t.pending, func(p stop) bool {
		due := s.now-p.at > 2*s.limits.Slack
		if due {
			t.judgeTaskStop(s, p)
		}
		return due
	})
	for _, m := range s.machines.by {
		t.judgeStopDeadlines(s, m)
	}
}

func (t *stops) judgeAllStops(s *runContext, _ *FleetSnapshot) {
	for _, p := range t.pending {
		t.judgeTaskStop(s, p)
	}
	t.pending = nil
}

func (t *stops) judgeTaskStop(s *runContext, p stop) {
	s.countJudgement(AbsenceStopsNothing)
	if p.m.connected >= 0 && p.m.session == p.session { // looks that came too early for its first answer
		p.heard = p.at
	}
	f := s.registry.allocs[p.key.Alloc]
	if f == nil || t.hasStopReason(s, p, f) || s.isClonedMachine(p.m.name) || p.m.hasDamageSince(p.at-s.limits.Heal) ||
		s.faults.hasFaultSince(s.now, p.at-s.limits.Slack, p.m.name, EndsTasks) {
		return
	}
	after, limited := f.stopAfter()
	if limited {
		if !p.m.certain || p.unmarked {
			return
		}
		s.countJudgement(StopDeadline)
		early := s.limits.Slack
		if p.killed { // the beats after the last mark are forgotten
			early += markEvery(after)
		}
		if p.alone >= after-early {
			s.countBranch(BranchStopDeadline)
			return
		}
	}
	evidence := []string{
		fmt.Sprintf("it may have heard a hub until %s", p.heard),
		fmt.Sprintf("its machine had run for %s at most since the last answered beat", p.alone),
	}
	if f.stopped > 0 {
		evidence = append(evidence, fmt.Sprintf("a hub wanted it stopped from %s on: %s", f.stopped, f.alloc.DesiredDescription))
	}
	switch {
	case s.faults.hasFaultSince(s.now, p.at-s.limits.Heal, p.m.name, MovesTime):
		s.reportWithEvidence(TrustedTime, p.m.name, evidence, "task %s was stopped at %s, on a machine whose clock was moved, and nobody wanted it", p.key, p.at)
	case limited:
		s.reportWithEvidence(StopDeadline, p.m.name, evidence, "task %s was stopped %s at most after the last answered beat: stop_on_client_after is %s", p.key, p.alone, after)
	default:
		s.reportWithEvidence(AbsenceStopsNothing, p.m.name, evidence, "task %s was stopped at %s, and nobody wanted it", p.key, p.at)
	}
}

// hasStopReason reports whether somebody wanted a task stopped whom the edge could hear.
func (t *stops) hasStopReason(s *runContext, p stop, f *allocFact) bool {
	if f.stopped > 0 && f.stopped <= p.heard {
		return true
	}
	if f.group != nil && f.group.MaxRunDuration != nil && p.m.ranFor(p.key.Alloc, p.at) >= *f.group.MaxRunDuration-s.limits.Slack {
		return true
	}
	if s.hasRequest(func(r asked) bool {
		return (r.Alloc == p.key.Alloc || r.Alloc == "" && r.Edge == p.m.name) && r.at <= p.at+s.limits.Slack
	}) {
		return true
	}
	for key, other := range p.m.tasks { // a task that ends may end its group's others
		if key.Alloc == p.key.Alloc && key != p.key && other.what == TaskExited {
			return true
		}
	}
	return false
}

// stopAfter is the allocation's stop_on_client_after.
func (f *allocFact) stopAfter() (time.Duration, bool) {
	if f.group == nil || f.group.Disconnect == nil || f.group.Disconnect.StopOnClientAfter == nil {
		return 0, false
	}
	return *f.group.Disconnect.StopOnClientAfter, true
}

// markEvery is how exactly an edge remembers its last beat across a kill.
func markEvery(after time.Duration) time.Duration {
	return min(max(time.Second, after/10), 10*time.Minute)
}

// judgeStopDeadlines looks for tasks whose stop_on_client_after is over and that run on.
func (t *stops) judgeStopDeadlines(s *runContext, m *machine) {
	if m.agent < 0 || !m.hasHeartbeat || m.connected >= 0 || s.isClonedMachine(m.name) {
		return
	}
	opened := s.now - m.linked // a session of which its agent has not told yet
	alone := m.uptimeSinceHeartbeat(s.now)
	for key, truth := range m.tasks {
		f := s.registry.allocs[key.Alloc]
		if truth.live == 0 || f == nil || t.late[key] {
			continue
		}
		after, limited := f.stopAfter()
		if !limited {
			continue
		}
		s.countJudgement(StopDeadline)
		slack := 2*s.limits.Slack + f.killTimeout(key.Task) + time.Duration(m.kills+1)*markEvery(after)
		fresh := s.now-max(m.agent, f.first, truth.begun) < slack // what brought it may be an answer that its agent has not told of
		if alone < after+slack || opened < slack || fresh || f.first > m.lastHeartbeat && s.now-f.first < after+slack ||
			m.hasDamageSince(s.now-slack) || s.faults.hasFaultSince(s.now, s.now-slack, m.name, Halts, Chokes, EndsTasks) { // its driver may be dead
			continue
		}
		t.late[key] = true
		invariant := StopDeadline
		if s.faults.hasFaultSince(s.now, m.lastHeartbeat-s.limits.Heal, m.name, MovesTime) {
			invariant = TrustedTime
		}
		s.reportViolation(invariant, m.name, "task %s runs %s after the last answered beat, by its machine's own time: stop_on_client_after is %s (%d kills since)",
			key, alone, after, m.kills)
	}
}

func (f *allocFact) killTimeout(task string) time.Duration {
	if f.group != nil {
		if t := f.group.Task(task); t != nil && t.KillTimeout > 0 {
			return t.KillTimeout
		}
	}
	return fleet.DefaultKillTimeout
}
