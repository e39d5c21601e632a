package reconcile

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// allocKind classifies one allocation, independently of the other allocations of its name index.
type allocKind int

const (
	kindEnded         allocKind = iota // the hub has stopped or retired it: it does not count
	kindRunning                        // pending or running, and its node is ready
	kindReplaying                      // the history of its node is not applied yet: it must not change
	kindUnknown                        // is unknown and stays so
	kindDisconnecting                  // its node is away: it becomes unknown
	kindLost                           // to be marked lost
	kindMigrating                      // a drain or an operator wants it stopped and replaced
	kindFailed                         // has failed; the reschedule policy decides
	kindSucceeded                      // a batch allocation that has succeeded: it counts for good
	kindCompleted                      // a service that has completed, or a batch allocation that its edge stopped: it is to be replaced
)

// member is an allocation within its name index.
type member struct {
	a    *fleet.Alloc
	kind allocKind
	// reconnecting: it was unknown and its node is back, and no decision has reconciled that yet.
	reconnecting    bool
	absent          bool    // its node is away
	held            bool    // somebody on site stopped it, and the newest version does not overrule that
	isDuplicate     bool    // it could be the current allocation, and another one is
	newerNotRunning bool    // it is a duplicate only because it does not run yet, although it is newer
	hasTurn         bool    // it is not healthy yet, so that it has a turn of its rollout already
	rules           Absence // of its group and node pool
	// heard is when its node was last heard of, if the node is away and the edge stops the allocation for that; else zero.
	heard  time.Time
	reason string // for people: why replaying, disconnecting, lost, or a duplicate
}

// statusOnEdge returns the client status that the edge reported last, or pending.
func (m *member) statusOnEdge() string {
	switch {
	case m.a.ClientStatus != fleet.ClientUnknown:
		return m.a.ClientStatus
	case m.a.ReportedStatus != "":
		return m.a.ReportedStatus
	}
	return fleet.ClientPending
}

// keptReason returns why a current allocation stays as it is.
func (m *member) keptReason() string {
	if m.held {
		return "it was " + m.a.Held.String()
	}
	return "it is as it should be"
}

// endedOnEdge reports whether the edge reported the allocation's end, and the hub acts on that now.
func (m *member) endedOnEdge() bool {
	s := m.statusOnEdge()
	return (m.reconnecting || m.a.ClientTerminal()) && (s == fleet.ClientComplete || s == fleet.ClientFailed)
}

// isPossiblyRunning reports whether the allocation runs, may run, or will run.
func (m *member) isPossiblyRunning() bool {
	switch m.kind {
	case kindRunning, kindReplaying, kindUnknown, kindDisconnecting:
		return true
	}
	return false
}

// canBeCurrent reports whether the allocation can be the current one of its name index.
func (m *member) canBeCurrent() bool {
	switch m.kind {
	case kindRunning, kindFailed, kindSucceeded, kindCompleted:
		return true
	}
	return false
}

// classifyAlloc determines the kind of an allocation. The first rule that matches counts.
func (d *decision) classifyAlloc(a *fleet.Alloc) *member {
	node := d.in.Nodes[a.NodeID]
	m := &member{a: a, absent: node != nil && (node.Status == fleet.NodeDisconnected || node.Status == fleet.NodeDown)}
	m.rules = AbsenceOf(a.Group(), d.poolDefault(node))
	if node != nil {
		m.rules = m.rules.lengthenHold(a.RunsAloneFor(node.Received))
		if m.rules.Hold > 0 && node.DisconnectedAt > 0 {
			m.heard = time.Unix(0, node.DisconnectedAt)
		}
	}
	if d.isSystemJob() {
		m.rules.Replace, m.rules.Hold = false, 0 // it is never replaced on another node
	}
	if m.held = d.isHeld(a); m.held {
		m.rules = Absence{Tolerated: true} // it is not replaced, however long its node is away
	}
	ready := node != nil && node.Status == fleet.NodeReady
	m.reconnecting = a.NeedsToReconnect() && (ready || m.absent && a.ClientTerminal())
	switch {
	case a.AwaitsPlacement() && !d.isSystemJob():
		m.kind = d.terminalKind(m, node)
	case d.isBatchJob() && a.DoneAfterAll() && !d.needsDestructiveUpdate(a):
		m.kind = kindSucceeded
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
	case m.reconnecting && d.isSystemJob() && d.isBatchJob() && m.rules.isPastLostAfter(m.awaySince(), d.in.Now):
		m.kind, m.reason = kindLost, fmt.Sprintf("it was unknown for longer than %s, and its node is back", m.rules.LostAfter)
	case m.reconnecting && m.statusOnEdge() == fleet.ClientFailed:
		m.kind = kindFailed
	case m.reconnecting && m.statusOnEdge() == fleet.ClientComplete:
		m.kind = d.completedKind(a)
	default:
		m.kind = kindRunning
	}
	return m
}

// isHeld reports whether an allocation was stopped on site, and its job's newest version does not overrule that. It
// is kept as it is: it is neither replaced nor updated.
func (d *decision) isHeld(a *fleet.Alloc) bool {
	return a.Held != nil && !a.ClientTerminal() && d.in.Job != nil && !d.in.Job.Overrules(a.Held, a.TaskGroup, d.in.Job.Version)
}

// isSystemJob reports whether the job runs on every node (system, sysbatch).
func (d *decision) isSystemJob() bool {
	return d.in.Job != nil && fleet.RunsEverywhere(d.in.Job.Type)
}

// isOfNewestVersion reports whether an allocation runs the job's newest version. A version of an earlier
// job of the same name does not count.
func (d *decision) isOfNewestVersion(a *fleet.Alloc) bool {
	return a.JobVersion == d.in.Job.Version && a.Job != nil && a.Job.CreateIndex == d.in.Job.CreateIndex
}

// poolDefault returns the disconnect default of a node's pool; n may be nil.
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

// terminalKind returns the kind of an allocation that has ended or was marked lost while the hub still
// wants it to run.
func (d *decision) terminalKind(m *member, node *fleet.Node) allocKind {
	if node != nil && node.Status == fleet.NodeInitializing && m.a.NeedsToReconnect() {
		return kindReplaying
	}
	if !m.reconnecting && d.isBatchJob() && d.needsDestructiveUpdate(m.a) {
		return kindEnded // a changed batch job runs all of its allocations again
	}
	switch m.statusOnEdge() {
	case fleet.ClientFailed:
		return kindFailed
	case fleet.ClientComplete:
		return d.completedKind(m.a)
	}
	return kindCompleted
}

// completedKind returns the kind of an allocation that has completed. What its edge stopped by itself has not succeeded.
func (d *decision) completedKind(a *fleet.Alloc) allocKind {
	if d.isBatchJob() && !a.StoppedOnEdge {
		return kindSucceeded
	}
	return kindCompleted
}

// absentKind returns the kind of a live allocation on a node that is away, and the reason for people.
func absentKind(m *member, node *fleet.Node, now time.Time) (allocKind, string) {
	name := nodeName(node)
	switch {
	case m.a.ClientStatus == fleet.ClientUnknown && m.rules.isPastLostAfter(m.awaySince(), now):
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

// String describes the rules for people.
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

// nodeName returns the node's name, or its short id if it has none.
func nodeName(n *fleet.Node) string {
	if n.Name != "" {
		return n.Name
	}
	return fleet.Short(n.ID)
}
