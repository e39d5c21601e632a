package check

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// standing follows what hubs show of what is under way: nodes that are not ready,
// allocations that are not settled, evaluations that are not over. Each may last in
// bad weather, and for its bound in fair weather.
type standing struct {
	hubs  map[string]*shown
	evals map[fleet.EvalID]*evalFact
}

// shown is what one hub shows, and since when.
type shown struct {
	nodes     map[fleet.NodeID]*halfWay
	unsettled map[string]time.Duration
	told      map[string]bool
}

// halfWay is a node that is not ready.
type halfWay struct {
	name, why string
	status    fleet.NodeStatus
	since     time.Duration
}

type evalFact struct {
	due   time.Duration
	index fleet.Index // of the newest view that shows it pending
	seen  time.Duration
	told  bool
	job   fleet.JobID
	why   string
}

func newStanding() *standing {
	return &standing{hubs: map[string]*shown{}, evals: map[fleet.EvalID]*evalFact{}}
}

func (t *standing) see(s *scene, o *Observation) {
	switch {
	case o.Hub != nil:
		t.hub(s, o.Hub)
	case o.Applied != nil && o.Applied.Effects != nil:
		for i := range o.Applied.Effects.Evals {
			t.eval(s, &o.Applied.Effects.Evals[i], o.Applied.Index)
		}
	case o.Process != nil && !o.Process.Edge:
		delete(t.hubs, o.Process.Name)
	case o.Fault.rewinds():
		clear(t.hubs)
		clear(t.evals)
	}
}

func (t *standing) hub(s *scene, h *Hub) {
	seen := t.hubs[h.Name]
	if seen == nil {
		seen = &shown{nodes: map[fleet.NodeID]*halfWay{}, unsettled: map[string]time.Duration{}, told: map[string]bool{}}
		t.hubs[h.Name] = seen
	}
	for i := range h.Nodes {
		seen.node(s, &h.Nodes[i])
	}
	seen.unsettled = keepOlder(seen.unsettled, unsettled(s, h))
	if len(seen.unsettled) == 0 {
		clear(seen.told)
	}
	open := map[fleet.EvalID]bool{}
	for i := range h.Evals {
		if e := &h.Evals[i]; e.Status == fleet.EvalPending {
			open[e.ID] = true
			t.eval(s, e, h.Index)
		}
	}
	t.close(s, h, open)
}

// keepOlder has the times of old for what is in now.
func keepOlder(old, now map[string]time.Duration) map[string]time.Duration {
	for what := range now {
		if since, ok := old[what]; ok {
			now[what] = since
		}
	}
	return now
}

// unsettled names what a hub has still to decide.
func unsettled(s *scene, h *Hub) map[string]time.Duration {
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
		if f := s.fleet.jobs[a.JobID]; f != nil && f.job.Stop && !f.unsure && !a.Terminal() {
			out[fmt.Sprintf("allocation %s of job %s is to run: the job was stopped", fleet.Short(a.ID), a.JobID)] = s.now
		}
	}
	return out
}

func (seen *shown) node(s *scene, n *fleet.Node) {
	s.judge(Initializing)
	if n.Status == fleet.NodeReady {
		delete(seen.nodes, n.ID)
		return
	}
	at := seen.nodes[n.ID]
	if at == nil {
		at = &halfWay{since: s.now}
		seen.nodes[n.ID] = at
	}
	at.name, at.why, at.status = n.Name, n.StatusDescription, n.Status
}

// tick judges what has lasted too long.
func (t *standing) tick(s *scene) {
	for name, seen := range t.hubs {
		for id, at := range seen.nodes {
			at.judge(s, name, id)
		}
		for what, since := range seen.unsettled {
			s.judge(Settled)
			if !seen.told[what] && s.overdueEverywhere(max(since, s.fleet.changed), s.limits.Heal) {
				seen.told[what] = true
				s.broke(Settled, name, "%s, since %s, in fair weather", what, since)
			}
		}
	}
	for id, f := range t.evals {
		s.judge(EvaluationsEnd)
		if !f.told && s.overdueEverywhere(f.due, s.limits.Evaluate) {
			f.told = true
			s.broke(EvaluationsEnd, string(f.job), "evaluation %s (%s) is pending since it was due at %s", fleet.Short(id), f.why, f.due)
		}
	}
}

// judge judges a node that is not ready though its edge has a link.
func (at *halfWay) judge(s *scene, hub string, id fleet.NodeID) {
	edge := s.fleet.name(id)
	m := s.truth.by[edge]
	switch {
	case m == nil && at.status != fleet.NodeInitializing:
		return // nobody knows whether its edge has a link
	case m == nil:
	case m.connected < 0: // what happens on a machine without a link is the weather's
		at.since = s.now
		return
	default:
		at.since = max(at.since, m.connected)
	}
	if s.overdue(edge, at.since, s.limits.Ready) {
		s.broke(Initializing, hub, "node %s is %s (%s) since %s though its edge has a session", at.name, at.status, at.why, at.since)
		at.since = s.now // and again after as long
	}
}

// eval notes an evaluation that is to end.
func (t *standing) eval(s *scene, e *fleet.Evaluation, index fleet.Index) {
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

// close forgets evaluations that a hub shows to be over.
func (t *standing) close(s *scene, h *Hub, open map[fleet.EvalID]bool) {
	for id, f := range t.evals {
		newer := h.Index > 0 && h.Index >= f.index || h.Index == 0 && s.now-f.seen > s.limits.Slack
		if !open[id] && newer {
			delete(t.evals, id)
		}
	}
}

// end judges what the last picture shows: it is quiet, and everything is over.
func (t *standing) end(s *scene, p *Picture) {
	for _, h := range p.Hubs {
		s.judge(EvaluationsEnd)
		for _, e := range h.Evals {
			if e.Status == fleet.EvalPending && e.WaitUntil.IsZero() {
				s.broke(EvaluationsEnd, h.Name, "evaluation %s of job %s (%s) is pending at the end", fleet.Short(e.ID), e.JobID, e.TriggeredBy)
			}
		}
	}
}
