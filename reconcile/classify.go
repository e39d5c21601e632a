package reconcile

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// allocKind is what one allocation is, before its slot is looked at.
type allocKind int

const (
	kindEnded         allocKind = iota // the hub has stopped or retired it: counts for nothing
	kindRunning                        // lives, in sight
	kindReplaying                      // on a node whose history is not in yet: not to be touched
	kindUnknown                        // unknown, and may stay so
	kindDisconnecting                  // its node went out of sight: becomes unknown
	kindLost                           // given up
	kindMigrating                      // an operator wants it elsewhere, or anew
	kindFailed                         // ended badly; the reschedule policy decides
	kindSucceeded                      // a batch allocation that succeeded: counts, for good
	kindCompleted                      // a service that completed: to be replaced
)

// member is an allocation within its slot.
type member struct {
	a    *fleet.Alloc
	kind allocKind
	// reconnecting: it was unknown and is back, and that is not settled yet.
	reconnecting    bool
	absent          bool // its node is away
	isDuplicate     bool // it could be the holder of its slot, and another is
	newerNotRunning bool // it would be, but takes the place of what runs, and does not run itself
	rules           Absence
	reason          string // of kinds frozen, leaving and lost, and of who loses its slot
}

// statusOnEdge is what the edge says of the allocation.
func (m *member) statusOnEdge() string {
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
	s := m.statusOnEdge()
	return (m.reconnecting || m.a.ClientTerminal()) && (s == fleet.ClientComplete || s == fleet.ClientFailed)
}

// isPossiblyRunning: it runs, or may run, or will.
func (m *member) isPossiblyRunning() bool {
	switch m.kind {
	case kindRunning, kindReplaying, kindUnknown, kindDisconnecting:
		return true
	}
	return false
}

// canBeCurrent: it can be the holder of its slot.
func (m *member) canBeCurrent() bool {
	switch m.kind {
	case kindRunning, kindFailed, kindSucceeded, kindCompleted:
		return true
	}
	return false
}

// classifyAlloc says what an allocation is. The rules are in order; the first that
// matches holds.
func (d *decision) classifyAlloc(a *fleet.Alloc) *member {
	node := d.in.Nodes[a.NodeID]
	m := &member{a: a, absent: node != nil && (node.Status == fleet.NodeDisconnected || node.Status == fleet.NodeDown)}
	m.rules = AbsenceOf(a.Group(), d.poolDefault(node))
	if d.isSystemJob() {
		m.rules.Replace, m.rules.Hold = false, 0 // nothing ever takes its place elsewhere
	}
	ready := node != nil && node.Status == fleet.NodeReady
	m.reconnecting = a.NeedsToReconnect() && (ready || m.absent && a.ClientTerminal())
	switch {
	case a.AwaitsPlacement() && !d.isSystemJob():
		m.kind = d.terminalKind(m, node)
	case a.NoLongerWanted():
		m.kind = kindEnded
	case a.ClientTerminal():
		m.kind = d.terminalKind(m, node)
	case node == nil:
		m.kind, m.reason = kindLost, "its node was removed"
	case node.Revoked != nil:
		m.kind, m.reason = kindLost, "its node was revoked"
	case node.Status == fleet.NodeInitializing:
		m.kind = kindReplaying
	case a.DesiredTransition.Migrate:
		m.kind = kindMigrating
	case m.absent && d.isSystemJob() && m.rules.Nomad && a.ClientStatus == fleet.ClientPending && node.Status == fleet.NodeDisconnected:
		m.kind, m.reason = kindReplaying, "it had not started when its node was disconnected"
	case m.absent:
		m.kind, m.reason = absentKind(m, node, d.in.Now)
	case m.reconnecting && d.isSystemJob() && d.isBatchJob() && m.rules.isPastLostAfter(awaySince(a), d.in.Now):
		m.kind, m.reason = kindLost, fmt.Sprintf("it was unknown for longer than %s, and its node is back", m.rules.LostAfter)
	case m.reconnecting && m.statusOnEdge() == fleet.ClientFailed:
		m.kind = kindFailed
	case m.reconnecting && m.statusOnEdge() == fleet.ClientComplete:
		m.kind = d.completedKind()
	default:
		m.kind = kindRunning
	}
	return m
}

// isSystemJob: the job has its allocations on every node.
func (d *decision) isSystemJob() bool {
	return d.in.Job != nil && fleet.RunsEverywhere(d.in.Job.Type)
}

// isOfNewestVersion reports whether an allocation was placed for the job's newest version, and not
// for one of that number of an earlier job.
func (d *decision) isOfNewestVersion(a *fleet.Alloc) bool {
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

// terminalKind is the kind of an allocation that its edge has finished with, or that
// was given up while the hub still wants it to run.
func (d *decision) terminalKind(m *member, node *fleet.Node) allocKind {
	if node != nil && node.Status == fleet.NodeInitializing && m.a.NeedsToReconnect() {
		return kindReplaying
	}
	if !m.reconnecting && d.isBatchJob() && d.needsDestructiveUpdate(m.a) {
		return kindEnded // a batch job that changed runs again, all of it
	}
	switch m.statusOnEdge() {
	case fleet.ClientFailed:
		return kindFailed
	case fleet.ClientComplete:
		return d.completedKind()
	}
	return kindCompleted
}

func (d *decision) completedKind() allocKind {
	if d.isBatchJob() {
		return kindSucceeded
	}
	return kindCompleted
}

// absentKind is the kind of a living allocation on a node that is away.
func absentKind(m *member, node *fleet.Node, now time.Time) (allocKind, string) {
	name := nodeName(node)
	switch {
	case m.a.ClientStatus == fleet.ClientUnknown && m.rules.isPastLostAfter(awaySince(m.a), now):
		return kindLost, fmt.Sprintf("node %s was away for longer than %s", name, m.rules.LostAfter)
	case m.a.ClientStatus == fleet.ClientUnknown && m.rules.Tolerated:
		return kindUnknown, ""
	case m.a.ClientStatus == fleet.ClientPending && m.rules.PendingLost:
		return kindLost, fmt.Sprintf("node %s is %s, and it had not started", name, node.Status)
	case m.rules.Tolerated:
		return kindDisconnecting, fmt.Sprintf("node %s is %s: %s", name, node.Status, m.rules)
	}
	return kindLost, fmt.Sprintf("node %s is %s", name, node.Status)
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
