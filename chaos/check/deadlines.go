package check

import "time"

// deadlines judges that no edge's silence is taken for an absence before it has
// lasted for as long as an edge may be silent.
type deadlines struct{}

func newDeadlines() checker {
	t := &deadlines{}
	return checker{state: t, entry: t.judgeMissedDeadlines}
}

// hubsAlone is for how long after hubs could not reach each other an edge's answers
// may have come from one that nobody heard.
const hubsAlone = 2 * time.Minute

func (t *deadlines) judgeMissedDeadlines(s *runContext, a *Applied) {
	if s.decided < s.now {
		return // a replay tells of what was decided and judged long ago
	}
	for _, moved := range a.Effects.Moved {
		m := s.machines.by[s.registry.edgeNameOf(moved.Node)]
		if m == nil || !m.hasHeartbeat || t.isDeadlineExcused(s, m.name) {
			continue
		}
		s.countJudgement(TrustedTime)
		if silent := s.now - m.lastHeartbeat; silent < s.limits.TTL-s.limits.Slack {
			s.reportViolation(TrustedTime, m.name, "entry %d makes the node %s %s after its last answered beat: an edge may be silent for %s",
				a.Index, moved.Status, silent, s.limits.TTL)
		}
	}
}

func (t *deadlines) isDeadlineExcused(s *runContext, edge string) bool {
	then := s.now - hubsAlone
	if s.isClonedMachine(edge) || s.faults.hasFaultSince(s.now, then, edge, Severs, Impairs) {
		return true
	}
	for hub := range s.faults.hubs {
		if s.faults.hasFaultSince(s.now, then, hub, Severs, Impairs, Chokes) {
			return true
		}
	}
	return false
}
