package check

import (
	"time"

	"skerry/fleet"
)

// deadlines checks heartbeat deadlines. No node is taken for disconnected or down before its edge was silent
// for the TTL. The node of an agent that has been down for long enough is neither ready nor initializing: each
// session has a deadline, also one without a heartbeat.
type deadlines struct {
	told map[fleet.NodeID]bool // nodes that were reported in the present silence
}

// newDeadlines returns the checker of heartbeat deadlines.
func newDeadlines() checker {
	t := &deadlines{told: map[fleet.NodeID]bool{}}
	return checker{state: t, entry: t.judgeMissedDeadlines, tick: t.judgeSilentNodes}
}

// hubsAlone is for how long before a missed deadline a fault of links or hubs' disks excuses it: an edge may
// have had answers from a hub that could not reach the leader.
const hubsAlone = 2 * time.Minute

// judgeMissedDeadlines reports nodes that an entry makes disconnected or down earlier than a TTL after the last
// answered heartbeat. Entries that are applied again are not judged.
func (t *deadlines) judgeMissedDeadlines(s *runContext, a *Applied) {
	if s.decided < s.now {
		return // applied again: it was judged when it was applied first
	}
	for _, moved := range a.Effects.Moved {
		m := s.machineOf(moved.Node)
		if m == nil || !m.hasHeartbeat || s.isClonedMachine(m.name) ||
			s.faults.hasFaultSince(s.now, s.now-hubsAlone, m.name, Severs, Impairs) ||
			s.faults.hasHubFaultSince(s.now, s.now-hubsAlone, Severs, Impairs, Chokes) {
			continue
		}
		s.countJudgement(TrustedTime)
		if silent := s.now - m.lastHeartbeat; silent < s.limits.TTL-s.limits.Slack {
			s.reportViolation(TrustedTime, m.name, "entry %d makes the node %s %s after its last answered heartbeat: an edge may be silent for %s",
				a.Index, moved.Status, silent, s.limits.TTL)
		}
	}
}

// noticing bounds the time that a leader needs, after the TTL, to act on a missed deadline: the grace, the
// interval at which deadlines are polled, and commands that are repeated.
const noticing = time.Minute

// judgeSilentNodes reports nodes that are still ready or initializing though their agent has been down for too
// long. Edges without a link are not judged: a hub may get heartbeats whose answers are lost. Nor are times in
// which hubs had faults.
func (t *deadlines) judgeSilentNodes(s *runContext) {
	bound := 2*s.limits.LongestTTL + noticing + 2*s.limits.Slack
	for _, m := range s.machines.by {
		if m.node == "" || m.agent >= 0 || s.now-m.ended < bound {
			delete(t.told, m.node)
			continue
		}
		node := s.nodes[m.node]
		if node == nil || node.Status == "" || s.isClonedMachine(m.name) || t.told[m.node] ||
			s.now-s.led < bound || s.faults.isRewindActive() ||
			s.faults.hasHubFaultSince(s.now, s.now-2*bound, Severs, Impairs, Halts, Reboots, Chokes, MovesTime, Damages) {
			continue
		}
		s.countJudgement(Initializing)
		if node.Status == fleet.NodeReady || node.Status == fleet.NodeInitializing {
			t.told[m.node] = true
			s.reportViolation(Initializing, m.name, "the node is %s, though its agent has been down for %s: no leader acts on its missed deadline",
				node.Status, s.now-m.ended)
		}
	}
}
