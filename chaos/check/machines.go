package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// machine is an edge's machine and what really runs on it: the truth, beside which
// every record is only somebody's word.
type machine struct {
	name string
	node fleet.NodeID
	// agent is since when its agent runs, -1: it does not.
	agent time.Duration
	ended time.Duration // when its agent ended last
	// on is for how long the machine has run in all, up to counted.
	on      time.Duration
	counted time.Duration
	off     bool
	tasks   map[TaskKey]*taskTruth

	looked    time.Duration // when its agent was asked last
	connected time.Duration // since when at the earliest, as its agent says; -1: it is not
	linked    time.Duration // when it was last known to have a session
	session   uint64
	opened    uint64 // the newest session that was committed
	// lastHeartbeat is when it last had an answer, as its agent said, and uptimeAtHeartbeat for how long the
	// machine had run by then at most; beaten is false before the first.
	lastHeartbeat, uptimeAtHeartbeat time.Duration
	hasHeartbeat                     bool
	// surely is a time since which it had an answer for certain, whatever its agent says
	// of that; certain is false before the first.
	surely, surelyOn time.Duration
	certain          bool
	silences         []silence // of the last minutes, that are over
	kills            int       // unclean ends of its agent since the last beat

	// damaged says that its journal lost what it held, and no hub has told it again
	// what it shall run; mended is when the last time of that was over, -1: never.
	damaged bool
	mended  time.Duration
}

// silence is how long a machine had run without an answer until it had one again.
type silence struct {
	lasted, broken time.Duration
	began          time.Duration
	killed         bool // its agent was meanwhile
}

// keptSilences is for how long a silence that is over is remembered: longer than
// any task takes to be stopped, also one with the longest kill_timeout that is drawn (3 min).
const keptSilences = 4 * time.Minute

// taskTruth is a task as it really is.
type taskTruth struct {
	live  int           // processes of it
	begun time.Duration // when it was started first
	since time.Duration // of its last change
	what  string        // its last change
	// succeeded is when it last ended by itself and without a failure; -1: never.
	succeeded time.Duration
}

// machines is the truth of all edges. It is fed before the checkers that ask it.
type machines struct {
	by    map[string]*machine
	nodes map[fleet.NodeID]map[string]bool // names of those that take themselves for a node
}

func newMachines() *machines {
	return &machines{by: map[string]*machine{}, nodes: map[fleet.NodeID]map[string]bool{}}
}

func (t *machines) ensureMachine(name string) *machine {
	m := t.by[name]
	if m == nil {
		m = &machine{name: name, agent: -1, connected: -1, mended: -1, tasks: map[TaskKey]*taskTruth{}}
		t.by[name] = m
	}
	return m
}

// machineOf is the machine of a node, nil where none is known.
func (s *runContext) machineOf(id fleet.NodeID) *machine {
	return s.machines.by[s.registry.edgeNameOf(id)]
}

// isClonedMachine reports whether a machine shares its identity with another one, or ever
// did.
func (s *runContext) isClonedMachine(name string) bool {
	if s.faults.hasEverHadFault(name, Clones) {
		return true
	}
	m := s.machines.by[name]
	return m != nil && m.node != "" && len(s.machines.nodes[m.node]) > 1
}

// hasDamageSince reports whether an edge may lack what it once knew, or did so at some
// time from then on.
func (m *machine) hasDamageSince(then time.Duration) bool {
	return m.damaged || m.mended >= 0 && m.mended >= then
}

// updateMachines takes what an observation tells of machines.
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
		t.heardOf(s.now, o.Applied.Effects)
	}
}

// heardOf takes what an entry tells of links: whoever opens a session or sends rows has one.
func (t *machines) heardOf(now time.Duration, e *Effects) {
	for _, m := range t.by {
		if e.Opened != nil && m.node == e.Opened.Node {
			m.linked, m.opened = now, e.Opened.Session
		}
		if slices.ContainsFunc(e.Batches, func(b Batch) bool { return b.Node == m.node && b.Code == "" }) {
			m.linked = now
		}
	}
}

func (m *machine) recordProcessEvent(s *runContext, p *Process) {
	m.updateUptime(s.now)
	if p.What == ProcessStart {
		m.agent, m.off, m.connected = s.now, false, -1
		return
	}
	if m.agent >= 0 && p.What != ProcessStop {
		m.kills++
	}
	if m.connected >= 0 { // it may have had answers since its agent was asked
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

// updateUptime adds up for how long the machine has run.
func (m *machine) updateUptime(now time.Duration) {
	if !m.off {
		m.on += now - m.counted
	}
	m.counted = now
}

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

// keptTasks is how many tasks of a machine are remembered before those go that
// ended long ago.
const keptTasks = 500

func (m *machine) pruneEndedTasks(now time.Duration) {
	for key, t := range m.tasks {
		if t.live == 0 && now-t.since > keptAllocs {
			delete(m.tasks, key)
		}
	}
}

// recordEdgeView takes what its agent says of the link. That a beat was answered is believed
// only where an answer could get through: where the link was just cut one way, one that
// was underway does.
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
	before := m.connected
	switch {
	case !e.Link.Connected:
		m.connected = -1
	case m.connected < 0 || e.Link.Session != m.session:
		m.connected = max(0, m.agent, m.looked)
	}
	m.session, m.looked = e.Link.Session, s.now
	heard := before >= 0 || m.connected >= 0
	if m.connected >= 0 {
		m.linked = s.now
	}
	if spell := unansweredHeartbeats * s.limits.LongestTTL; m.connected >= 0 && !s.faults.hasFaultSince(s.now, s.now-spell, m.name, Severs) {
		m.recordHeartbeatAnswer(s.now, min(spell, s.now-m.connected))
	}
	answered := s.now - e.Link.Away
	severed := s.faults.hasFaultAt(m.name, answered, Severs) && s.faults.hasFaultAt(m.name, answered-s.limits.Slack, Severs) // not just before
	if e.Link.Away > 0 && heard && answered > m.lastHeartbeat && !severed {
		m.recordHeartbeatAnswer(s.now, e.Link.Away)
		m.lastHeartbeat, m.hasHeartbeat, m.kills = answered, true, 0
		m.uptimeAtHeartbeat = max(0, m.on-e.Link.Away)
	}
}

// unansweredHeartbeats bounds, in times of the TTL, how long ago an edge with a session had
// its last answer: the next beat comes a TTL after it, and a session ends when the
// oldest of three has no answer.
const unansweredHeartbeats = 1 + 3

// recordHeartbeatAnswer notes that a beat was answered at some time within the last ago: the silence
// before it may have lasted until now.
func (m *machine) recordHeartbeatAnswer(now, ago time.Duration) {
	m.updateUptime(now)
	if at := now - ago; !m.certain || at > m.surely {
		on := max(0, m.on-ago)
		m.silences = slices.DeleteFunc(m.silences, func(s silence) bool { return now-s.broken > keptSilences })
		m.silences = append(m.silences, silence{lasted: m.on - m.surelyOn, broken: now, began: m.surely, killed: m.kills > 0})
		m.surely, m.surelyOn, m.certain = at, on, true
	}
}

// uptimeSinceHeartbeat is for how long the machine has run since its last answered beat, as its
// agent counts where that is plausible.
func (m *machine) uptimeSinceHeartbeat(now time.Duration) time.Duration {
	m.updateUptime(now)
	return m.on - m.uptimeAtHeartbeat
}

// aloneAtMost is for how long it may have run since, at any time within the last ago.
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

// killedSince reports whether its agent was killed in a silence within the last ago, and when
// the first of those began.
func (m *machine) killedSince(now, ago time.Duration) (began time.Duration, killed bool) {
	for _, s := range m.silences {
		if s.killed && s.broken >= now-ago {
			return s.began, true
		}
	}
	return m.surely, m.kills > 0
}
