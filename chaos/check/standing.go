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
	nodes     map[fleet.NodeID]time.Duration
	unsettled map[string]time.Duration
	told      map[string]bool
}

type evalFact struct {
	due  time.Duration
	seen time.Duration
	told bool
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
			t.eval(s, &o.Applied.Effects.Evals[i])
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
		seen = &shown{nodes: map[fleet.NodeID]time.Duration{}, unsettled: map[string]time.Duration{}, told: map[string]bool{}}
		t.hubs[h.Name] = seen
	}
	for i := range h.Nodes {
		t.node(s, h.Name, seen, &h.Nodes[i])
	}
	seen.unsettled = keepOlder(seen.unsettled, unsettled(s, h))
	for what, since := range seen.unsettled {
		s.judge(Settled)
		if !seen.told[what] && s.overdueEverywhere(max(since, s.fleet.changed), s.limits.Heal) {
			seen.told[what] = true
			s.broke(Settled, h.Name, "%s since %s, in fair weather", what, since)
		}
	}
	if len(seen.unsettled) == 0 {
		clear(seen.told)
	}
	open := map[fleet.EvalID]bool{}
	for i := range h.Evals {
		if e := &h.Evals[i]; e.Status == fleet.EvalPending {
			open[e.ID] = true
			t.eval(s, e)
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
		if f := s.fleet.jobs[a.JobID]; f != nil && f.job.Stop && !a.Terminal() {
			out[fmt.Sprintf("allocation %s is to run, of a job that was stopped", fleet.Short(a.ID))] = s.now
		}
	}
	return out
}

// node judges a node that is not ready though its edge has a link.
func (t *standing) node(s *scene, hub string, seen *shown, n *fleet.Node) {
	s.judge(Initializing)
	if n.Status == fleet.NodeReady {
		delete(seen.nodes, n.ID)
		return
	}
	since, ok := seen.nodes[n.ID]
	if !ok {
		since = s.now
		seen.nodes[n.ID] = since
	}
	name := s.fleet.name(n.ID)
	m := s.truth.by[name]
	if m != nil { // what happens on a machine that is down, or has no link, is the weather's
		if m.connected < 0 {
			seen.nodes[n.ID] = s.now
			return
		}
		since = max(since, m.connected)
	} else if n.Status != fleet.NodeInitializing {
		return
	}
	if s.overdue(name, since, s.limits.Ready) {
		seen.nodes[n.ID] = s.now // and again after as long
		s.broke(Initializing, hub, "node %s is %s (%s) since %s though its edge has a session", n.Name, n.Status, n.StatusDescription, since)
	}
}

// eval notes an evaluation that is to end.
func (t *standing) eval(s *scene, e *fleet.Evaluation) {
	if e.Status != fleet.EvalPending {
		return
	}
	f := t.evals[e.ID]
	if f == nil {
		f = &evalFact{due: s.now}
		if !e.WaitUntil.IsZero() { // by the hub's clock, as its creation is
			f.due += max(0, e.WaitUntil.Sub(time.Unix(0, e.CreateTime)))
		}
		t.evals[e.ID] = f
	}
	f.seen = s.now
}

// close forgets evaluations that a hub shows no more, and judges the others.
func (t *standing) close(s *scene, h *Hub, open map[fleet.EvalID]bool) {
	for id, f := range t.evals {
		if !open[id] {
			if s.now-f.seen > s.limits.Slack || s.now > f.seen && h.Leads {
				delete(t.evals, id)
			}
			continue
		}
		s.judge(EvaluationsEnd)
		if !f.told && s.overdueEverywhere(f.due, s.limits.Evaluate) {
			f.told = true
			s.broke(EvaluationsEnd, h.Name, "evaluation %s is pending since it was due at %s", fleet.Short(id), f.due)
		}
	}
}

func (t *standing) tick(*scene) {}

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
