package check

import (
	"fmt"
	"maps"
	"time"

	"skerry/fleet"
)

// standing checks that unfinished work ends: nodes become ready, allocations are settled, evaluations end. Each
// piece of work may last while faults are active, and for its bound after them.
type standing struct {
	hubs  map[string]*hubView
	evals map[fleet.EvalID]*evalFact
}

// hubView is the unfinished work that one hub shows, and since when.
type hubView struct {
	index     fleet.Index   // of the view; 0: it says none
	applied   time.Duration // when the hub applied the first entry after the view; 0: it has applied none
	nodes     map[fleet.NodeID]*unreadyNode
	unsettled map[string]time.Duration // since when, by a description of the work
	told      map[string]bool          // work that was reported as overdue
}

// unreadyNode is a node that is not ready, with its status and since when it counts.
type unreadyNode struct {
	name, why string
	status    fleet.NodeStatus
	since     time.Duration
}

// evalFact is a pending evaluation.
type evalFact struct {
	due   time.Duration // time from which on it must be processed
	index fleet.Index   // of the newest view or entry that shows it pending
	seen  time.Duration // when it was shown pending last
	shown time.Duration // when a hub's view showed it pending last
	told  bool          // a violation was reported
	job   fleet.JobID
	why   string // its TriggeredBy
}

// newStanding returns the checker of unfinished work.
func newStanding() checker {
	t := &standing{hubs: map[string]*hubView{}, evals: map[fleet.EvalID]*evalFact{}}
	return checker{
		state: t, hub: t.recordUnsettledWork, applied: t.recordNewerEntry, entry: t.recordEntryEvals, rewind: t.forgetViews, tick: t.judgeOverdueWork,
		finish: t.judgePendingEvals, process: func(_ *runContext, p *Process) { delete(t.hubs, p.Name) },
	}
}

// recordNewerEntry records when a hub's last view became an old one.
func (t *standing) recordNewerEntry(s *runContext, a *Applied) {
	if seen := t.hubs[a.Hub]; seen != nil && seen.applied == 0 && seen.index > 0 && a.Index > seen.index {
		seen.applied = s.now
	}
}

// recordEntryEvals records the pending evaluations that an entry makes.
func (t *standing) recordEntryEvals(s *runContext, a *Applied) {
	for i := range a.Effects.Evals {
		t.recordPendingEval(s, &a.Effects.Evals[i], a.Index)
	}
}

// forgetViews drops everything after the hubs were restored from an older copy.
func (t *standing) forgetViews(*runContext) {
	clear(t.hubs)
	clear(t.evals)
}

// recordUnsettledWork records the unfinished work that a hub shows: nodes, allocations and evaluations. Work
// that was there before keeps its time.
func (t *standing) recordUnsettledWork(s *runContext, h *Hub) {
	seen := t.hubs[h.Name]
	if seen == nil {
		seen = &hubView{nodes: map[fleet.NodeID]*unreadyNode{}, unsettled: map[string]time.Duration{}, told: map[string]bool{}}
		t.hubs[h.Name] = seen
	}
	seen.index, seen.applied = h.Index, 0
	maps.DeleteFunc(seen.nodes, func(id fleet.NodeID, _ *unreadyNode) bool { return findNode(h.Nodes, id) == nil }) // purged
	for i := range h.Nodes {
		seen.updateUnreadyNode(s, &h.Nodes[i])
	}
	seen.unsettled = keepOlder(seen.unsettled, unsettledAllocs(s, h))
	if len(seen.unsettled) == 0 {
		clear(seen.told)
	}
	open := map[fleet.EvalID]bool{}
	for i := range h.Evals {
		if e := &h.Evals[i]; e.Status == fleet.EvalPending {
			open[e.ID] = true
			t.recordPendingEval(s, e, h.Index)
			t.evals[e.ID].shown = s.now
		}
	}
	t.forgetEndedEvals(s, h, open)
}

// keepOlder returns now with the times of those entries that old has, too. It changes now.
func keepOlder(old, now map[string]time.Duration) map[string]time.Duration {
	for what := range now {
		if since, ok := old[what]; ok {
			now[what] = since
		}
	}
	return now
}

// unsettledAllocs returns descriptions of the allocations that a hub must still settle, with the present time: unknown
// ones, reconnected ones, and those of a stopped job.
func unsettledAllocs(s *runContext, h *Hub) map[string]time.Duration {
	out := map[string]time.Duration{}
	for i := range h.Allocs {
		a := &h.Allocs[i]
		switch {
		case a.ServerTerminal():
		case a.ClientStatus == fleet.ClientUnknown:
			out[fmt.Sprintf("allocation %s is unknown", fleet.Short(a.ID))] = s.now
		case a.NeedsToReconnect():
			out[fmt.Sprintf("allocation %s is back and was not settled", fleet.Short(a.ID))] = s.now
		}
		if f := s.registry.jobs[a.JobID]; f != nil && f.job.Stop && !f.unsure && !a.Terminal() {
			out[fmt.Sprintf("allocation %s of job %s is desired, although the job was stopped", fleet.Short(a.ID), a.JobID)] = s.now
		}
	}
	return out
}

// updateUnreadyNode adds or updates a node that is not ready, and removes one that is.
func (seen *hubView) updateUnreadyNode(s *runContext, n *fleet.Node) {
	s.countJudgement(Initializing)
	if n.Status == fleet.NodeReady {
		delete(seen.nodes, n.ID)
		return
	}
	at := seen.nodes[n.ID]
	if at == nil {
		at = &unreadyNode{since: s.now}
		seen.nodes[n.ID] = at
	}
	at.name, at.why, at.status = n.Name, n.StatusDescription, n.Status
}

// judgeOverdueWork reports nodes, allocations and evaluations that were unfinished for longer than their bound
// without faults.
func (t *standing) judgeOverdueWork(s *runContext) {
	for name, seen := range t.hubs {
		for id, at := range seen.nodes {
			at.judgeReadyDeadline(s, name, id, seen.holdsUntil(s))
		}
		for what, since := range seen.unsettled {
			s.countJudgement(Settled)
			if !seen.told[what] && s.wasOverdueEverywhere(max(since, s.registry.changed), s.limits.Heal, seen.holdsUntil(s)) {
				seen.told[what] = true
				s.reportViolation(Settled, name, "%s, since %s, without faults", what, since)
			}
		}
	}
	for id, f := range t.evals {
		s.countJudgement(EvaluationsEnd)
		// An entry may be an old one that a hub replays. While no hub shows its state, nobody knows what came of it.
		if !f.told && f.shown-f.due >= s.limits.Evaluate && s.overdueEverywhere(f.due, s.limits.Evaluate) {
			f.told = true
			s.reportViolation(EvaluationsEnd, string(f.job), "evaluation %s (%s) is pending since it was due at %s", fleet.Short(id), f.why, f.due)
		}
	}
}

// holdsUntil returns until when the hub's state is known to be as its last view shows it. A view may be an old one: a hub
// that has much to do is seldom seen.
func (seen *hubView) holdsUntil(s *runContext) time.Duration {
	if seen.applied > 0 {
		return seen.applied
	}
	return s.now
}

// judgeReadyDeadline reports a node that was not ready for longer than Limits.Ready, as far as it was seen, though its
// edge has a session, and reports it again after the same time. Without a session its time starts again.
func (at *unreadyNode) judgeReadyDeadline(s *runContext, hub string, id fleet.NodeID, until time.Duration) {
	edge := s.registry.edgeNameOf(id)
	m := s.machines.by[edge]
	switch {
	case m == nil && at.status != fleet.NodeInitializing:
		return // it is not known whether its edge has a link
	case m == nil:
	case m.connected < 0: // without a link, the machine is under a fault
		at.since = s.now
		return
	default:
		at.since = max(at.since, m.connected)
	}
	if s.wasOverdue(edge, at.since, s.limits.Ready, until) {
		s.reportViolation(Initializing, hub, "node %s is %s (%s) since %s though its edge has a session", at.name, at.status, at.why, at.since)
		at.since = s.now // it is reported again after the same time
	}
}

// recordPendingEval records a pending evaluation; one with a WaitUntil is due only then. It ignores other
// statuses.
func (t *standing) recordPendingEval(s *runContext, e *fleet.Evaluation, index fleet.Index) {
	if e.Status != fleet.EvalPending {
		return
	}
	f := t.evals[e.ID]
	if f == nil {
		f = &evalFact{due: s.now, job: e.JobID, why: e.TriggeredBy}
		if !e.WaitUntil.IsZero() { // by the hub's clock, as its creation is
			f.due += max(0, e.WaitUntil.Sub(time.Unix(0, e.CreateTime)))
		}
		t.evals[e.ID] = f
	}
	f.seen, f.index = s.now, max(f.index, index)
}

// forgetEndedEvals drops evaluations that are not among the open ones of a hub whose view is newer than the
// last one that showed them.
func (t *standing) forgetEndedEvals(s *runContext, h *Hub, open map[fleet.EvalID]bool) {
	for id, f := range t.evals {
		newer := h.Index > 0 && h.Index >= f.index || h.Index == 0 && s.now-f.seen > s.limits.Slack
		if !open[id] && newer {
			delete(t.evals, id)
		}
	}
}

// judgePendingEvals reports evaluations that are pending in the last snapshot, in which the fleet has nothing
// left to do. Those with a WaitUntil may be.
func (t *standing) judgePendingEvals(s *runContext, p *FleetSnapshot) {
	for _, h := range p.Hubs {
		s.countJudgement(EvaluationsEnd)
		for _, e := range h.Evals {
			if e.Status == fleet.EvalPending && e.WaitUntil.IsZero() {
				s.reportViolation(EvaluationsEnd, h.Name, "evaluation %s of job %s (%s) is pending at the end", fleet.Short(e.ID), e.JobID, e.TriggeredBy)
			}
		}
	}
}
