package check

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// keptSiteCodes bounds how many site codes are remembered: the oldest are dropped.
const keptSiteCodes = 20

// siteCodes checks that people on site get in by the codes that their edge was told of, also without a link, and no longer by
// one of which it was told that it is revoked.
type siteCodes struct {
	codes map[string]*siteCode
	next  time.Duration // when it is looked again what edges were told
}

// siteCode is what is known of one code.
type siteCode struct {
	made, revoked time.Duration // when a hub acknowledged it; revoked -1: nobody has asked for it
	told          map[string]bool
	toldRevoked   map[string]bool
}

// newSiteCodes returns the checker of site codes.
func newSiteCodes() checker {
	t := &siteCodes{codes: map[string]*siteCode{}}
	return checker{state: t, siteCode: t.recordUse, fault: t.forgetEdges, request: t.forgetWipedEdge, rewind: t.forgetAll, tick: t.recordTold}
}

// recordUse records that a code was made or revoked, and judges its use.
func (t *siteCodes) recordUse(s *runContext, u *SiteCodeUse) {
	c := t.codes[u.Code]
	switch {
	case u.What == SiteCodeMade:
		t.dropOldest()
		t.codes[u.Code] = &siteCode{made: s.now, revoked: -1, told: map[string]bool{}, toldRevoked: map[string]bool{}}
	case c == nil: // of before the hubs were put back
	case u.What == SiteCodeRevoked:
		c.revoked = s.now
	case u.What == SiteCodeTried:
		t.recordToldEdge(s, c, s.machines.by[u.Edge])
		t.judgeTry(s, c, u)
	}
}

// judgeTry judges the answer of an edge to a code.
func (t *siteCodes) judgeTry(s *runContext, c *siteCode, u *SiteCodeUse) {
	if s.isClonedMachine(u.Edge) {
		return
	}
	s.countJudgement(SiteCodes)
	switch {
	case u.Allowed && u.Capability != SiteCodeMayRead:
		s.reportViolation(SiteCodes, u.Edge, "site code %s is good for %q, which its policy does not allow", u.Code, u.Capability)
	case u.Allowed && c.toldRevoked[u.Edge]:
		s.reportViolation(SiteCodes, u.Edge, "site code %s is good, though it was revoked at %s, and the edge was told", u.Code, c.revoked)
	case !u.Allowed && u.Capability == SiteCodeMayRead && c.told[u.Edge] && c.revoked < 0 &&
		!s.faults.hasEverHadFault(u.Edge, MovesTime) && !s.faults.hasHubFaultSince(s.now, 0, MovesTime): // a wrong clock may end a code
		s.reportViolation(SiteCodes, u.Edge, "site code %s is refused, though the edge was told of it, and nobody has revoked it", u.Code)
	}
}

// recordTold records, once in judgeVariablesEvery, what edges were told.
func (t *siteCodes) recordTold(s *runContext) {
	if s.now < t.next || len(t.codes) == 0 {
		return
	}
	t.next = s.now + judgeVariablesEvery
	for _, c := range t.codes {
		for _, m := range s.machines.by {
			t.recordToldEdge(s, c, m)
		}
	}
}

// recordToldEdge records what an edge was told of a code: it has had a session for long enough since, and nothing disturbed it.
func (t *siteCodes) recordToldEdge(s *runContext, c *siteCode, m *machine) {
	if m == nil || m.connected < 0 || m.agent < 0 || m.damaged {
		return
	}
	hasHeard := func(since time.Duration) bool {
		since = max(since, m.connected)
		return s.isOverdue(m.name, since, s.limits.Deliver) && m.looked >= since+s.limits.Deliver
	}
	if !c.told[m.name] && hasHeard(c.made) {
		c.told[m.name] = true
	}
	if c.revoked >= 0 && !c.toldRevoked[m.name] && hasHeard(c.revoked) {
		c.toldRevoked[m.name] = true
	}
}

// forgetEdges forgets what edges were told whose data a fault damages or copies.
func (t *siteCodes) forgetEdges(s *runContext, f *Fault) {
	for name := range s.machines.by {
		if f.hasEffectOn(name, []Effect{Damages, Clones, Revokes}) {
			t.forgetEdge(name)
		}
	}
}

// forgetWipedEdge forgets what an edge was told whose machine lost its data.
func (t *siteCodes) forgetWipedEdge(_ *runContext, r *Request) {
	if r.What == EdgeWiped {
		t.forgetEdge(r.Edge)
	}
}

func (t *siteCodes) forgetEdge(name string) {
	for _, c := range t.codes {
		delete(c.told, name)
		delete(c.toldRevoked, name)
	}
}

// forgetAll forgets the codes: hubs that are put back may not have them, or not that they are revoked.
func (t *siteCodes) forgetAll(*runContext) { clear(t.codes) }

// dropOldest drops the oldest code where there are keptSiteCodes.
func (t *siteCodes) dropOldest() {
	if len(t.codes) < keptSiteCodes {
		return
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(t.codes)), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.codes[a].made, t.codes[b].made), cmp.Compare(a, b))
	})
	delete(t.codes, oldest)
}
