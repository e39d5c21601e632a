package reconcile

import (
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/planted"
)

// kind is what one allocation is, before its slot is looked at.
type kind int

const (
	ended     kind = iota // the hub has stopped or retired it: counts for nothing
	present               // lives, in sight
	frozen                // on a node whose history is not in yet: not to be touched
	away                  // unknown, and may stay so
	leaving               // its node went out of sight: becomes unknown
	lost                  // given up
	migrating             // an operator wants it elsewhere, or anew
	failed                // ended badly; the reschedule policy decides
	done                  // a batch allocation that succeeded: counts, for good
	spent                 // a service that completed: to be replaced
)

// member is an allocation within its slot.
type member struct {
	a    *fleet.Alloc
	kind kind
	// due: it was unknown and is back, and that is not settled yet.
	due    bool
	absent bool // its node is away
	loses  bool // it could be the holder of its slot, and another is
	early  bool // it would be, but takes the place of what runs, and does not run itself
	rules  Absence
	reason string // of kinds frozen, leaving and lost, and of who loses its slot
}

// status is what the edge says of the allocation.
func (m *member) status() string {
	switch {
	case m.a.ClientStatus != fleet.ClientUnknown:
		return m.a.ClientStatus
	case m.a.ReportedStatus != "":
		return m.a.ReportedStatus
	}
	return fleet.ClientPending
}

// endedOnEdge reports whether the edge says that the allocation has ended, as far as the hub
// takes that into account now.
func (m *member) endedOnEdge() bool {
	s := m.status()
	return (m.due || m.a.ClientTerminal()) && (s == fleet.ClientComplete || s == fleet.ClientFailed)
}

// alive: it runs, or may run, or will.
func (m *member) alive() bool {
	switch m.kind {
	case present, frozen, away, leaving:
		return true
	}
	return false
}

// counts: it can be the holder of its slot.
func (m *member) counts() bool {
	switch m.kind {
	case present, failed, done, spent:
		return true
	}
	return false
}

// classify says what an allocation is. The rules are in order; the first that
// matches holds.
func (d *decision) classify(a *fleet.Alloc) *member {
	node := d.in.Nodes[a.NodeID]
	m := &member{a: a, absent: node != nil && (node.Status == fleet.NodeDisconnected || node.Status == fleet.NodeDown)}
	m.rules = AbsenceOf(a.Group(), d.poolDefault(node))
	if d.system() {
		m.rules.Replace, m.rules.Hold = false, 0 // nothing ever takes its place elsewhere
	}
	ready := node != nil && node.Status == fleet.NodeReady
	m.due = a.NeedsToReconnect() && (ready || m.absent && a.ClientTerminal())
	if planted.On(planted.SettleTwice) {
		m.due = len(a.AllocStates) > 0 && ready
	}
	switch {
	case a.AwaitsPlacement() && !d.system():
		m.kind = d.ending(m, node)
	case a.NoLongerWanted():
		m.kind = ended
	case a.ClientTerminal():
		m.kind = d.ending(m, node)
	case node == nil:
		m.kind, m.reason = lost, "its node was removed"
	case node.Revoked != nil:
		m.kind, m.reason = lost, "its node was revoked"
	case node.Status == fleet.NodeInitializing:
		m.kind = frozen
	case a.DesiredTransition.Migrate:
		m.kind = migrating
	case m.absent && d.system() && m.rules.Nomad && a.ClientStatus == fleet.ClientPending && node.Status == fleet.NodeDisconnected:
		m.kind, m.reason = frozen, "it had not started when its node was disconnected"
	case m.absent:
		m.kind, m.reason = absence(m, node, d.in.Now)
	case m.due && d.system() && d.batch() && m.rules.expired(awaySince(a), d.in.Now):
		m.kind, m.reason = lost, fmt.Sprintf("it was unknown for longer than %s, and its node is back", m.rules.LostAfter)
	case m.due && m.status() == fleet.ClientFailed:
		m.kind = failed
	case m.due && m.status() == fleet.ClientComplete:
		m.kind = d.completed()
	default:
		m.kind = present
	}
	return m
}

// system: the job has its allocations on every node.
func (d *decision) system() bool {
	return d.in.Job != nil && fleet.RunsEverywhere(d.in.Job.Type)
}

// ofNewest reports whether an allocation was placed for the job's newest version, and not
// for one of that number of an earlier job.
func (d *decision) ofNewest(a *fleet.Alloc) bool {
	return a.JobVersion == d.in.Job.Version && a.Job != nil && a.Job.CreateIndex == d.in.Job.CreateIndex
}

func (d *decision) poolDefault(n *fleet.Node) string {
	if n == nil {
		return fleet.DisconnectKeep
	}
	pool := n.NodePool
	if pool == "" {
		pool = fleet.DefaultPool
	}
	return d.in.DefaultDisconnect[pool]
}

// ending is the kind of an allocation that its edge has finished with, or that
// was given up while the hub still wants it to run.
func (d *decision) ending(m *member, node *fleet.Node) kind {
	if node != nil && node.Status == fleet.NodeInitializing && m.a.NeedsToReconnect() {
		return frozen
	}
	if !m.due && d.batch() && d.outdated(m.a) {
		return ended // a batch job that changed runs again, all of it
	}
	switch m.status() {
	case fleet.ClientFailed:
		return failed
	case fleet.ClientComplete:
		return d.completed()
	}
	return spent
}

func (d *decision) completed() kind {
	if d.batch() {
		return done
	}
	return spent
}

// absence is the kind of a living allocation on a node that is away.
func absence(m *member, node *fleet.Node, now time.Time) (kind, string) {
	name := nodeName(node)
	switch {
	case m.a.ClientStatus == fleet.ClientUnknown && m.rules.expired(awaySince(m.a), now):
		return lost, fmt.Sprintf("node %s was away for longer than %s", name, m.rules.LostAfter)
	case m.a.ClientStatus == fleet.ClientUnknown && m.rules.Tolerated:
		return away, ""
	case m.a.ClientStatus == fleet.ClientPending && m.rules.PendingLost:
		return lost, fmt.Sprintf("node %s is %s, and it had not started", name, node.Status)
	case m.rules.Tolerated:
		return leaving, fmt.Sprintf("node %s is %s: %s", name, node.Status, m.rules)
	}
	return lost, fmt.Sprintf("node %s is %s", name, node.Status)
}

// String says what an absence means, for people.
func (p Absence) String() string {
	switch {
	case !p.Tolerated:
		return "lost"
	case p.LostAfter > 0 && p.Replace:
		return fmt.Sprintf("lost after %s, replaced meanwhile", p.LostAfter)
	case p.LostAfter > 0:
		return fmt.Sprintf("lost after %s, not replaced before", p.LostAfter)
	case p.Replace:
		return "waited for, replaced meanwhile"
	}
	return "waited for, not replaced"
}

func nodeName(n *fleet.Node) string {
	if n.Name != "" {
		return n.Name
	}
	return fleet.Short(n.ID)
}
