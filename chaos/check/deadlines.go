package check

import (
	"time"

	"skerry/fleet"
)

// deadlines checks heartbeat deadlines. No node becomes disconnected or down before its edge was silent for the TTL.
// The node of an agent that has been down long enough is neither ready nor initializing: each session has a deadline,
// even without a heartbeat.
type deadlines struct {
	told map[fleet.NodeID]bool // nodes that were reported in the present silence
}

// newDeadlines returns the checker of heartbeat deadlines.
func newDeadlines() checker {
	t := &deadlines{told: map[fleet.NodeID]bool{}}
	return checker{state: t, entry: t.judgeMissedDeadlines, tick: t.judgeSilentNodes}
}

// hubsAlone is the time before a missed deadline in which a fault of links or hubs' disks excuses it: a hub that could
// not reach the leader may have answered the edge.
const hubsAlone = 2 * time.Minute

// judgeMissedDeadlines reports nodes that an entry makes disconnected or down earlier than a TTL after the last
// answered heartbeat. Entries that are applied again are not judged.
func (t *deadlines) judgeMissedDeadlines(s *runContext, a *Applied) {
	if s.decided < s.now {
		return // the entry was judged when it was applied first
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

// noticing bounds the time in which a leader must act on a missed deadline after the TTL: the grace, the polling
// interval, and repeated commands.
const noticing = time.Minute

// judgeSilentNodes reports nodes that are still ready or initializing although their agent has been down too long. It
// skips edges without a link, because a hub may get heartbeats whose answers are lost, and times with faults of hubs.
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
