package check

import (
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
)

// stops checks the reason of each task that an agent really stopped: a hub that the edge could hear, a person, another
// task of the allocation, or stop_on_client_after. It also checks that stop_on_client_after stops tasks in time.
type stops struct {
	pending []stop
	late    map[TaskKey]bool // tasks whose passed deadline was reported
	// dialed is when each edge called a hub last that it could reach. A session may begin and end between two looks.
	dialed map[string]time.Duration
	// decided is when an edge journaled that stop_on_client_after is over for an allocation. On a slow disk the stop comes much later,
	// and a heartbeat may have been answered in between.
	decided map[fleet.AllocID]time.Duration
}

// stop is a stopped task. It is judged a little later, because its reason may be observed after it.
type stop struct {
	at    time.Duration
	begun time.Duration // when its agent decided it, at the earliest
	m     *machine
	key   TaskKey
	heard time.Duration // until when its edge may have received messages of a hub
	alone time.Duration // the longest possible uptime of its machine without an answered heartbeat
	// session is the newest session that its edge reported or that was committed.
	session uint64
	// unmarked says that a slow disk may have kept the edge from recording the last answered heartbeat, and that the
	// agent that knew it was killed.
	unmarked bool
	kills    int // of its agent since the last answered heartbeat; 0: none
}

// newStops returns the checker of stopped tasks.
func newStops() checker {
	t := &stops{late: map[TaskKey]bool{}, dialed: map[string]time.Duration{}, decided: map[fleet.AllocID]time.Duration{}}
	return checker{state: t, dial: t.recordDial, edge: t.recordDecisions, task: t.recordTaskStop, tick: t.judgeDueStops, finish: t.judgeAllStops}
}

// recordDial records that an edge calls a hub, unless its link is cut.
func (t *stops) recordDial(s *runContext, d *Dial) {
	if !s.faults.hasFaultNow(d.Edge, Severs) {
		t.dialed[d.Edge] = s.now
	}
}

// recordDecisions records the stops that an edge has decided by itself.
func (t *stops) recordDecisions(s *runContext, e *Edge) {
	for _, row := range e.Rows {
		if row.StoppedOnEdge {
			t.decided[row.Alloc] = s.now
		}
	}
}

// recordTaskStop records a task that its agent stopped, with the state of its machine at that time. It ignores
// stops while hubs are rewound: the decision for them may be lost.
func (t *stops) recordTaskStop(s *runContext, o *Task) {
	key := TaskKey{o.Alloc, o.Task}
	if o.What == TaskStarted {
		delete(t.late, key)
		delete(t.decided, o.Alloc)
	}
	if o.What != TaskStopped || s.faults.isRewindActive() {
		return
	}
	m := s.machines.ensureMachine(o.Edge)
	took := fleet.DefaultKillTimeout // the longest time since the decision
	if f := s.registry.allocs[key.Alloc]; f != nil {
		took = f.killTimeout(key.Task)
	}
	took += s.limits.Slack
	if at, ok := t.decided[o.Alloc]; ok {
		took = max(took, s.now-at+s.limits.Slack)
	}
	began, killed := m.killedSince(s.now, took)
	kills := 0
	if killed {
		kills = max(1, m.kills)
	}
	t.pending = append(t.pending, stop{
		at: s.now, begun: s.now - took, m: m, key: key, heard: t.latestMessage(s, m), alone: m.aloneAtMost(s.now, took),
		session: max(m.session, m.opened), kills: kills,
		unmarked: killed && s.faults.hasFaultSince(s.now, began, m.name, Chokes),
	})
}

// latestHubContact returns until when a message of a hub may have reached the edge. It returns now if the edge has a
// session or may have one. Sessions with hubs that are being rewound are not observed.
func (m *machine) latestHubContact(s *runContext) time.Duration {
	if s.faults.isRewindActive() || m.connected >= 0 || m.linked == 0 && !s.faults.hasFaultNow(m.name, Severs) {
		return s.now
	}
	return m.linked + s.limits.Slack
}

// latestMessage returns until when a message of a hub may have reached a machine's edge, in a session that nobody has seen too.
func (t *stops) latestMessage(s *runContext, m *machine) time.Duration {
	heard := m.latestHubContact(s)
	if dialed, ok := t.dialed[m.name]; ok {
		heard = min(s.now, max(heard, dialed+s.limits.Slack))
	}
	return heard
}

// judgeDueStops judges stops that are older than twice Limits.Slack, and looks for tasks that had to stop by
// now.
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

// judgeAllStops judges the remaining stops at the run's end.
func (t *stops) judgeAllStops(s *runContext, _ *FleetSnapshot) {
	for _, p := range t.pending {
		t.judgeTaskStop(s, p)
	}
	t.pending = nil
}

// judgeTaskStop reports a stop without a reason, under the invariant that fits: a moved clock, a
// stop_on_client_after that was not over, or an absence. Clones, damaged journals and faults of the tasks are
// excused.
func (t *stops) judgeTaskStop(s *runContext, p stop) {
	s.countJudgement(AbsenceStopsNothing)
	if p.m.connected >= 0 && p.m.session == p.session { // the polls came before its first answer
		p.heard = p.at
	}
	f := s.registry.allocs[p.key.Alloc]
	if f == nil || t.hasStopReason(s, p, f) || s.isClonedMachine(p.m.name) || p.m.hasDamageSince(p.at-s.limits.Heal) ||
		s.faults.hasFaultSince(s.now, p.begun, p.m.name, EndsTasks) { // a dead driver may have kept it from stopping before
		return
	}
	after, limited := f.stopAfter()
	if limited {
		if !p.m.certain || p.unmarked {
			return
		}
		s.countJudgement(StopDeadline)
		early := s.limits.Slack
		if p.kills > 0 { // a heartbeat may not be recorded, and after each loss of power the edge counts what may be lost
			early += time.Duration(p.kills+1) * checkpointInterval(after)
		}
		if p.alone >= after-early {
			s.countBranch(BranchStopDeadline)
			return
		}
	}
	evidence := []string{
		fmt.Sprintf("a hub's messages may have reached it until %s", p.heard),
		fmt.Sprintf("its machine had run for %s at most since the last answered heartbeat", p.alone),
	}
	if f.stopped > 0 {
		evidence = append(evidence, fmt.Sprintf("a hub wanted it stopped from %s on: %s", f.stopped, f.alloc.DesiredDescription))
	}
	switch {
	case s.faults.hasFaultSince(s.now, p.at-s.limits.Heal, p.m.name, MovesTime):
		s.reportWithEvidence(TrustedTime, p.m.name, evidence, "task %s was stopped at %s, on a machine whose clock was moved, and nobody had asked for it", p.key, p.at)
	case limited:
		s.reportWithEvidence(StopDeadline, p.m.name, evidence, "task %s was stopped %s at most after the last answered heartbeat: stop_on_client_after is %s", p.key, p.alone, after)
	default:
		s.reportWithEvidence(AbsenceStopsNothing, p.m.name, evidence, "task %s was stopped at %s, and nobody had asked for it", p.key, p.at)
	}
}

// hasStopReason reports whether a stop has a reason other than stop_on_client_after: a hub whose messages reached the
// edge, max_run_duration, a person, or another task of the allocation that exited.
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

// stopAfter returns the stop_on_client_after of the allocation's group, or false.
func (f *allocFact) stopAfter() (time.Duration, bool) {
	if f.group == nil || f.group.Disconnect == nil || f.group.Disconnect.StopOnClientAfter == nil {
		return 0, false
	}
	return *f.group.Disconnect.StopOnClientAfter, true
}

// checkpointInterval returns the interval at which an edge records its time and its last answered heartbeat, for a given
// stop_on_client_after.
func checkpointInterval(after time.Duration) time.Duration {
	return min(max(time.Second, after/20), 5*time.Minute)
}

// judgeStopDeadlines reports, once each, tasks of a machine without a session that still run after their
// stop_on_client_after is over, with slack for kills, the kill_timeout and faults.
func (t *stops) judgeStopDeadlines(s *runContext, m *machine) {
	if m.agent < 0 || !m.hasHeartbeat || m.connected >= 0 || s.isClonedMachine(m.name) {
		return
	}
	opened := s.now - m.linked // its agent may not have reported the newest session yet
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
		slack := 2*s.limits.Slack + f.killTimeout(key.Task) + time.Duration(m.kills+1)*checkpointInterval(after)
		fresh := s.now-max(m.agent, f.first, truth.begun) < slack // the agent may not have reported the answer with its delivery yet
		if alone < after+slack || opened < slack || fresh || f.first > m.lastHeartbeat && s.now-f.first < after+slack ||
			m.hasDamageSince(s.now-slack) || s.faults.hasFaultSince(s.now, s.now-slack, m.name, Halts, Chokes, EndsTasks) { // its driver may be dead
			continue
		}
		t.late[key] = true
		invariant := StopDeadline
		if s.faults.hasFaultSince(s.now, m.lastHeartbeat-s.limits.Heal, m.name, MovesTime) {
			invariant = TrustedTime
		}
		s.reportViolation(invariant, m.name, "task %s runs %s after the last answered heartbeat, by its machine's own time: stop_on_client_after is %s (%d kills since)",
			key, alone, after, m.kills)
	}
}

// killTimeout returns the kill_timeout of a task of the allocation, or the default.
func (f *allocFact) killTimeout(task string) time.Duration {
	if f.group != nil {
		if t := f.group.Task(task); t != nil && t.KillTimeout > 0 {
			return t.KillTimeout
		}
	}
	return fleet.DefaultKillTimeout
}
