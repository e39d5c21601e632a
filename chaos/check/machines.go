package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// machine is an edge's machine with its real tasks, as tasks and drivers report them. Checkers compare the fleet's
// records with it.
type machine struct {
	name string
	node fleet.NodeID
	// agent is since when its agent runs; -1: it does not run.
	agent time.Duration
	ended time.Duration // when its agent ended last
	// on is the time for which the machine has run in all, added up until counted.
	on      time.Duration
	counted time.Duration
	off     bool // the machine went down, and its agent has not started since
	tasks   map[TaskKey]*taskTruth

	looked    time.Duration // when its agent was polled last
	connected time.Duration // since when at the earliest it has a session, by its agent's report; -1: it has none
	linked    time.Duration // when it was last known to have a session
	session   uint64        // the newest session that its agent reported
	opened    uint64        // the newest session that was committed
	openedAt  time.Duration // when it was committed
	// lastHeartbeat is the agent's report of its last answered heartbeat, and uptimeAtHeartbeat the machine's longest
	// possible uptime then. hasHeartbeat is false before the first.
	lastHeartbeat, uptimeAtHeartbeat time.Duration
	hasHeartbeat                     bool
	// surely is a time after which a heartbeat was certainly sent that was answered, whatever the agent reports, and
	// surelyOn the machine's uptime then. certain is false before the first.
	surely, surelyOn time.Duration
	certain          bool
	silences         []silence // silences that ended within keptSilences
	kills            int       // unclean ends of its agent since the last answered heartbeat

	// damaged says that its journal lost rows, and no hub has sent it the desired state
	// since; mended is when this was last over, -1: never.
	damaged bool
	mended  time.Duration
}

// silence is a past period without an answered heartbeat.
type silence struct {
	lasted, broken time.Duration // the machine's uptime in it, and the time of its end
	began          time.Duration
	killed         bool // the agent was killed in it
}

// keptSilences is for how long a silence is remembered after its end: longer than any task takes to stop, with
// the longest kill_timeout that runs use (3 min).
const keptSilences = 4 * time.Minute

// taskTruth is the real state of a task, from the observations of its processes.
type taskTruth struct {
	live  int           // how many processes it has
	begun time.Duration // when it was started first
	since time.Duration // when it last changed
	what  string        // its last change: TaskStarted, …; "": a vanished task that was judged
	// succeeded is when it last exited by itself without a failure; -1: never.
	succeeded time.Duration
}

// machines has the machines of all edges. It is updated before checkers run, and asked by them.
type machines struct {
	by    map[string]*machine              // by the edge's name
	nodes map[fleet.NodeID]map[string]bool // names of the edges that use a node's identity
}

// newMachines returns a record without machines.
func newMachines() *machines {
	return &machines{by: map[string]*machine{}, nodes: map[fleet.NodeID]map[string]bool{}}
}

// ensureMachine returns the machine of an edge, and adds one that does not run for a new name.
func (t *machines) ensureMachine(name string) *machine {
	m := t.by[name]
	if m == nil {
		m = &machine{name: name, agent: -1, connected: -1, mended: -1, tasks: map[TaskKey]*taskTruth{}}
		t.by[name] = m
	}
	return m
}

// machineOf returns the machine of a node; nil where none is known.
func (s *runContext) machineOf(id fleet.NodeID) *machine {
	return s.machines.by[s.registry.edgeNameOf(id)]
}

// isClonedMachine reports whether a machine shares its node's identity with another one, or ever did.
func (s *runContext) isClonedMachine(name string) bool {
	if s.faults.hasEverHadFault(name, Clones) {
		return true
	}
	m := s.machines.by[name]
	return m != nil && m.node != "" && len(s.machines.nodes[m.node]) > 1
}

// hasDamageSince reports whether the edge's journal lacked rows by damage at any time from then on, without a
// hub having sent the desired state again.
func (m *machine) hasDamageSince(then time.Duration) bool {
	return m.damaged || m.mended >= 0 && m.mended >= then
}

// updateMachines updates the machines from an observation of processes, tasks, faults, edges or entries.
func (t *machines) updateMachines(s *runContext, o *Observation) {
	switch {
	case o.Process != nil && o.Process.Edge:
		t.ensureMachine(o.Process.Name).recordProcessEvent(s, o.Process)
	case o.Task != nil:
		t.ensureMachine(o.Task.Edge).recordTaskEvent(s.now, o.Task)
	case o.Fault != nil:
		for name, m := range t.by {
			m.damaged = m.damaged || o.Fault.hasEffectOn(name, []Effect{Damages})
		}
	case o.Edge != nil:
		t.ensureMachine(o.Edge.Name).recordEdgeView(s, o.Edge)
		if id := o.Edge.NodeID; id != "" && !t.nodes[id][o.Edge.Name] {
			if t.nodes[id] == nil {
				t.nodes[id] = map[string]bool{}
			}
			t.nodes[id][o.Edge.Name] = true
		}
	case o.Applied != nil && o.Applied.Effects != nil && s.decided == s.now:
		t.recordSessions(s.now, o.Applied.Effects)
	}
}

// recordSessions records that a machine had a session at now, for each node of which an entry opens a session or
// applies rows.
func (t *machines) recordSessions(now time.Duration, e *Effects) {
	for _, m := range t.by {
		if e.Opened != nil && m.node == e.Opened.Node {
			m.linked, m.opened, m.openedAt = now, e.Opened.Session, now
		}
		if slices.ContainsFunc(e.Batches, func(b Batch) bool { return b.Node == m.node && b.Code == "" }) {
			m.linked = now
		}
	}
}

// recordProcessEvent records that the agent or the machine starts or ends. With the machine all its tasks
// vanish.
func (m *machine) recordProcessEvent(s *runContext, p *Process) {
	m.updateUptime(s.now)
	if p.What == ProcessStart {
		m.agent, m.off, m.connected = s.now, false, -1
		return
	}
	if m.agent >= 0 && p.What != ProcessStop {
		m.kills++
	}
	if m.connected >= 0 { // heartbeats may have been answered since the last poll
		m.uptimeAtHeartbeat = m.on
	}
	m.agent, m.connected, m.ended = -1, -1, s.now
	if p.What == ProcessReboot || p.What == ProcessPowerCut {
		m.off = true
		for _, task := range m.tasks {
			if task.live > 0 {
				task.live, task.since, task.what = 0, s.now, TaskVanished
			}
		}
	}
}

// updateUptime adds the time since the last call to the machine's uptime, unless it is off.
func (m *machine) updateUptime(now time.Duration) {
	if !m.off {
		m.on += now - m.counted
	}
	m.counted = now
}

// recordTaskEvent records a start or an end of a task's process. It drops tasks that ended long ago where there
// are more than keptTasks.
func (m *machine) recordTaskEvent(now time.Duration, t *Task) {
	key := TaskKey{t.Alloc, t.Task}
	truth := m.tasks[key]
	if truth == nil {
		truth = &taskTruth{begun: now, succeeded: -1}
		m.tasks[key] = truth
	}
	if t.What == TaskStarted {
		truth.live++
	} else {
		truth.live = max(0, truth.live-1)
	}
	truth.since, truth.what = now, t.What
	if t.What == TaskExited && !t.Fails {
		truth.succeeded = now
	}
	if len(m.tasks) > keptTasks {
		m.pruneEndedTasks(now)
	}
}

// keptTasks is the number of tasks of a machine from which on those that ended long ago are dropped.
const keptTasks = 500

// pruneEndedTasks drops tasks without a process whose last change is older than keptAllocs.
func (m *machine) pruneEndedTasks(now time.Duration) {
	for key, t := range m.tasks {
		if t.live == 0 && now-t.since > keptAllocs {
			delete(m.tasks, key)
		}
	}
}

// recordEdgeView records the agent's report of its link. It believes when the last answered heartbeat was sent only if an
// answer could arrive since, also in a session that began and ended between two looks. A cut that began just before that
// time does not count, because the answer may have been in flight.
func (m *machine) recordEdgeView(s *runContext, e *Edge) {
	m.updateUptime(s.now)
	if e.NodeID != "" {
		m.node = e.NodeID
	}
	if e.Link == nil {
		return
	}
	if whole := e.Journal == nil || e.Journal.Lost == ""; m.damaged && whole && e.Link.Connected && !s.faults.hasFaultNow(m.name, Damages) {
		m.damaged, m.mended = false, s.now
	}
	before, looked := m.connected, m.looked
	switch {
	case !e.Link.Connected:
		m.connected = -1
	case m.connected < 0 || e.Link.Session != m.session:
		m.connected = max(0, m.agent, m.looked)
	}
	m.session, m.looked = e.Link.Session, s.now
	answered := s.now - e.Link.Away
	heard := before >= 0 || m.connected >= 0 || m.opened > 0 && m.openedAt >= looked && answered >= m.openedAt-s.limits.Slack
	if m.connected >= 0 || before >= 0 && !s.faults.hasFaultNow(m.name, Severs) { // until it ends, a session brings what hubs said
		m.linked = s.now
	}
	if spell := unansweredHeartbeats * s.limits.LongestTTL; m.connected >= 0 && !s.faults.hasFaultSince(s.now, s.now-spell, m.name, Severs) {
		m.recordHeartbeatAnswer(s.now, min(spell, s.now-m.connected)+latestAnswer*s.limits.LongestTTL)
	}
	// The cut has to be older than the heartbeat by Slack: just after a cut it may still be answered.
	severed := s.faults.hasFaultNow(m.name, Severs) && s.faults.hasFaultAt(m.name, answered-s.limits.Slack, Severs)
	if e.Link.Away > 0 && heard && answered > m.lastHeartbeat && !severed {
		m.recordHeartbeatAnswer(s.now, e.Link.Away)
		m.lastHeartbeat, m.hasHeartbeat, m.kills = answered, true, 0
		m.uptimeAtHeartbeat = max(0, m.on-e.Link.Away)
	}
}

// unansweredHeartbeats bounds, in multiples of the TTL, the age of the last answer of an edge with a session: the next
// heartbeat is sent a TTL after it, and the session ends when the oldest of three has no answer.
const unansweredHeartbeats = 1 + latestAnswer

// latestAnswer bounds, in multiples of the TTL, how long an answer may take: an edge counts from when it sent the heartbeat.
const latestAnswer = 3

// recordHeartbeatAnswer records that a heartbeat was sent between now-ago and now, nobody knows when, and was answered. The
// silence before it is kept as if it had lasted until now, and the next one begins at now-ago: both as long as they can have
// been.
func (m *machine) recordHeartbeatAnswer(now, ago time.Duration) {
	m.updateUptime(now)
	if at := now - ago; !m.certain || at > m.surely {
		on := max(0, m.on-ago)
		m.silences = slices.DeleteFunc(m.silences, func(s silence) bool { return now-s.broken > keptSilences })
		m.silences = append(m.silences, silence{lasted: m.on - m.surelyOn, broken: now, began: m.surely, killed: m.kills > 0})
		m.surely, m.surelyOn, m.certain = at, on, true
	}
}

// uptimeSinceHeartbeat returns for how long the machine has run since the last answered heartbeat that its
// agent credibly reported. It is the least possible time.
func (m *machine) uptimeSinceHeartbeat(now time.Duration) time.Duration {
	m.updateUptime(now)
	return m.on - m.uptimeAtHeartbeat
}

// aloneAtMost returns the longest time for which the machine can have run without an answered heartbeat, at any
// moment within the last ago.
func (m *machine) aloneAtMost(now, ago time.Duration) time.Duration {
	m.updateUptime(now)
	alone := m.on - m.surelyOn
	for _, s := range m.silences {
		if s.broken >= now-ago {
			alone = max(alone, s.lasted)
		}
	}
	return alone
}

// killedSince reports whether the agent was killed in the present silence, or in one that ended within the last ago.
// began is when that silence began.
func (m *machine) killedSince(now, ago time.Duration) (began time.Duration, killed bool) {
	for _, s := range m.silences {
		if s.killed && s.broken >= now-ago {
			return s.began, true
		}
	}
	return m.surely, m.kills > 0
}
