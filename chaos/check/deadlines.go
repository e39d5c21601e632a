package check

import "time"

// deadlines judges that no edge's silence is taken for an absence before it has
// lasted for as long as an edge may be silent.
type deadlines struct{}

func newDeadlines() *deadlines { return &deadlines{} }

// hubsAlone is for how long after hubs could not reach each other an edge's answers
// may have come from one that nobody heard.
const hubsAlone = 2 * time.Minute

func (t *deadlines) handleObservation(s *runContext, o *Observation) {
	if o.Applied == nil || o.Applied.Effects == nil || s.decided < s.now {
		return // a replay tells of what was decided and judged long ago
	}
	for _, moved := range o.Applied.Effects.Moved {
		m := s.machines.by[s.registry.edgeNameOf(moved.Node)]
		if m == nil || !m.hasHeartbeat || t.isDeadlineExcused(s, m.name) {
			continue
		}
		s.countJudgement(TrustedTime)
		if silent := s.now - m.lastHeartbeat; silent < s.limits.TTL-s.limits.Slack {
			s.reportViolation(TrustedTime, m.name, "entry %d makes the node %s %s after its last answered beat: an edge may be silent for %s",
				o.Applied.Index, moved.Status, silent, s.limits.TTL)
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

func (t *deadlines) handleTick(*runContext)                   {}
func (t *deadlines) handleRunEnd(*runContext, *FleetSnapshot) {}
