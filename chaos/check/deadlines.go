package check

import (
	"time"

	"skerry/fleet"
)

// deadlines judges the heartbeat deadlines of nodes. No edge's silence is taken for an absence
// before it has lasted for as long as an edge may be silent. The node of an agent that is down for
// long enough is disconnected: each session has a deadline, also one that never had a heartbeat.
type deadlines struct {
	told map[fleet.NodeID]bool // in this silence
}

func newDeadlines() checker {
	t := &deadlines{told: map[fleet.NodeID]bool{}}
	return checker{state: t, entry: t.judgeMissedDeadlines, tick: t.judgeSilentNodes}
}

// hubsAlone is for how long after hubs could not reach each other an edge's answers
// may have come from one that nobody heard.
const hubsAlone = 2 * time.Minute

func (t *deadlines) judgeMissedDeadlines(s *runContext, a *Applied) {
	if s.decided < s.now {
		return // a replay tells of what was decided and judged long ago
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
			s.reportViolation(TrustedTime, m.name, "entry %d makes the node %s %s after its last answered beat: an edge may be silent for %s",
				a.Index, moved.Status, silent, s.limits.TTL)
		}
	}
}

// noticing is what a leader takes for a missed deadline besides the TTL: the grace, the
// looks of whoever watches, and commands that have to be repeated.
const noticing = time.Minute

// judgeSilentNodes looks for nodes whose agent is down. Edges that are cut off are not judged: a hub
// may hear heartbeats whose answers are lost. Where hubs had trouble of their own, no leader may have
// counted for so long.
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
			s.reportViolation(Initializing, m.name, "the node is %s, though its agent has been down for %s: nobody waits for its deadline",
				node.Status, s.now-m.ended)
		}
	}
}
