package check

import (
	"time"

	"skerry/fleet"
)

// silent judges that the node of an agent that is down for long enough is disconnected: each
// session has a heartbeat deadline, also one that never had a heartbeat. Edges that are cut off
// are not judged: a hub may hear heartbeats whose answers are lost.
type silent struct {
	told map[fleet.NodeID]bool // in this silence
	term uint64
	led  time.Duration // since when in this term: deadlines begin anew with it
}

func newSilent() checker {
	t := &silent{told: map[fleet.NodeID]bool{}}
	return checker{state: t, entry: t.recordTerm, tick: t.judgeSilentNodes}
}

func (t *silent) recordTerm(s *runContext, a *Applied) {
	if a.Term > t.term {
		t.term, t.led = a.Term, s.now
	}
}

// noticing is what a leader takes for a missed deadline besides the TTL: the grace, the
// looks of whoever watches, and commands that have to be repeated.
const noticing = time.Minute

func (t *silent) judgeSilentNodes(s *runContext) {
	bound := 2*s.limits.LongestTTL + noticing + 2*s.limits.Slack
	for _, m := range s.machines.by {
		if m.node == "" || m.agent >= 0 || s.now-m.ended < bound {
			delete(t.told, m.node)
			continue
		}
		node := s.nodes[m.node]
		if node == nil || node.status == "" || s.isClonedMachine(m.name) || t.told[m.node] || s.now-t.led < bound || t.hasHubFaults(s, bound) {
			continue
		}
		s.countJudgement(Initializing)
		if node.status == fleet.NodeReady || node.status == fleet.NodeInitializing {
			t.told[m.node] = true
			s.reportViolation(Initializing, m.name, "the node is %s, though its agent has been down for %s: nobody waits for its deadline", node.status, s.now-m.ended)
		}
	}
}

// hasHubFaults reports whether hubs had trouble of their own, so that no leader may have
// counted for so long.
func (t *silent) hasHubFaults(s *runContext, bound time.Duration) bool {
	for hub := range s.faults.hubs {
		if s.faults.hasFaultSince(s.now, s.now-2*bound, hub, Severs, Impairs, Halts, Reboots, Chokes, MovesTime, Damages) {
			return true
		}
	}
	return s.faults.isRewindActive()
}
