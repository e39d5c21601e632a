package check

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// IntruderMark begins the names of jobs and variables that only probes ask for: nobody may see one in the state.
const IntruderMark = "intruder"

// permits checks that nobody without the capability changes or reads anything: each probe is refused, and leaves nothing
// in the state. An edge that was revoked gets no session and no variable.
type permits struct {
	revoked map[string]time.Duration // when edges were revoked that have not got another identity
}

// newPermits returns the checker of access control.
func newPermits() checker {
	t := &permits{revoked: map[string]time.Duration{}}
	return checker{state: t, probe: t.judgeProbe, entry: t.judgeEntry, request: t.recordRevocation, delivered: t.judgeDelivery}
}

// judgeProbe reports a probe that got another answer than a refusal. One without an answer, and one that a hub could not
// serve, show nothing.
func (t *permits) judgeProbe(s *runContext, p *Probe) {
	if p.Status == 0 || p.Status >= 500 || p.Status == http.StatusTooManyRequests {
		return
	}
	s.countJudgement(Permitted)
	if p.Status != http.StatusForbidden {
		s.reportViolation(Permitted, p.Hub, "%s with %s: status %d", p.Attempt, p.Token, p.Status)
	}
}

// judgeEntry reports an entry that registers the job of a probe, and a session of a revoked edge.
func (t *permits) judgeEntry(s *runContext, a *Applied) {
	if slices.ContainsFunc(a.Effects.Jobs, func(j JobChange) bool { return strings.HasPrefix(string(j.Job), IntruderMark) }) {
		s.reportViolation(Permitted, a.Hub, "entry %d registers a job for which nobody had the capability", a.Index)
	}
	if o := a.Effects.Opened; o != nil && s.decided == s.now {
		if m := s.machineOf(o.Node); m != nil && m.node == o.Node && t.isRevoked(s, m.name) {
			s.reportViolation(Permitted, m.name, "entry %d opens a session for it, though it was revoked", a.Index)
		}
	}
}

// recordRevocation records that a hub has acknowledged the revocation of an edge, or that its machine gets another
// identity.
func (t *permits) recordRevocation(s *runContext, r *Request) {
	switch r.What {
	case EdgeRevoked:
		t.revoked[r.Edge] = s.now
	case EdgeWiped:
		delete(t.revoked, r.Edge)
	}
}

// isRevoked reports whether an edge was revoked so long ago that every hub has to know it.
func (t *permits) isRevoked(s *runContext, edge string) bool {
	at, revoked := t.revoked[edge]
	return revoked && s.now-at > s.limits.Deliver
}

// judgeDelivery reports variables in a message to a revoked edge.
func (t *permits) judgeDelivery(s *runContext, d *DeliveredVariables) {
	if len(d.Paths) > 0 && t.isRevoked(s, d.Edge) {
		s.reportViolation(Permitted, d.Edge, "a hub sends it the variables %v, though it was revoked", d.Paths)
	}
}
