package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"skerry/fleet"
)

// auditKey identifies a change in an audit.
type auditKey struct {
	verb, object string
	status       int
	index        fleet.Index
}

// answered is an answer to a change that a user asked for.
type answered struct {
	Answer
	at time.Duration
}

// audits compares the hubs' audits with the answers that users got: each acknowledged change is in the audit of the hub
// that answered, once and in the order of the answers.
type audits struct {
	hubs map[string][]answered
	// silent has the requests that got no answer: they may be in the audit.
	silent map[string]map[auditKey]int
	// repeated are the actions on edges that were reported as kept more than once.
	repeated map[string]bool
}

// newAudits returns the checker of the hubs' audits.
func newAudits() checker {
	t := &audits{hubs: map[string][]answered{}, silent: map[string]map[auditKey]int{}, repeated: map[string]bool{}}
	return checker{
		state: t, answer: t.recordAnswer, audit: t.judgeAudit, hub: t.judgeSiteActions,
		rewind: func(*runContext) { clear(t.hubs); clear(t.silent) }, // the audits are put back, too
	}
}

// judgeSiteActions reports, once, an action on an edge that a hub keeps more than once: each hub writes it into its audit as
// often.
func (t *audits) judgeSiteActions(s *runContext, h *Hub) {
	for _, action := range h.RepeatedActions {
		if !t.repeated[action] {
			t.repeated[action] = true
			s.reportViolation(Audited, h.Name, "it keeps an action on an edge twice: %s", action)
		}
	}
}

// recordAnswer records the answer to a change, or that there was none.
func (t *audits) recordAnswer(s *runContext, a *Answer) {
	if a.Status == 0 {
		if t.silent[a.Hub] == nil {
			t.silent[a.Hub] = map[auditKey]int{}
		}
		t.silent[a.Hub][auditKey{verb: a.Verb, object: a.Object}]++
		return
	}
	t.hubs[a.Hub] = append(t.hubs[a.Hub], answered{*a, s.now})
}

// judgeAudit compares the audit of a hub with the answers that it gave. The entries are in the order of their numbers.
func (t *audits) judgeAudit(s *runContext, a *Audit) {
	s.countJudgement(Audited)
	if a.Broken != "" {
		s.reportViolation(Audited, a.Hub, "its audit does not verify: %s", a.Broken)
		return
	}
	places := map[auditKey][]int{}
	for i, e := range a.Entries {
		k := auditKey{e.Verb, e.Object, e.Status, e.Index}
		places[k] = append(places[k], i)
	}
	answers := slices.SortedStableFunc(slices.Values(t.hubs[a.Hub]), func(a, b answered) int { return cmp.Compare(a.at, b.at) })
	asked := map[auditKey]int{}
	for _, o := range answers {
		asked[auditKey{o.Verb, o.Object, o.Status, o.Index}]++
	}
	for k, n := range asked {
		s.countJudgement(Audited)
		switch found := len(places[k]); {
		case found < n:
			s.reportViolation(Audited, a.Hub, "%s is %d times in its audit: users got %d answers", k, found, n)
		case found > n && k.index > 0 && k.status < 300 && t.silent[a.Hub][auditKey{verb: k.verb, object: k.object}] == 0:
			s.reportViolation(Audited, a.Hub, "%s is %d times in its audit: users asked for it %d times", k, found, n)
		}
	}
	t.judgeOrder(s, a.Hub, answers, places)
}

// judgeOrder reports a change that was asked for after another one was acknowledged, and stands before it in the audit. It
// looks only at changes that are there once.
func (t *audits) judgeOrder(s *runContext, hub string, answers []answered, places map[auditKey][]int) {
	last, lastAt := -1, time.Duration(0)
	var before auditKey
	for _, o := range answers {
		k := auditKey{o.Verb, o.Object, o.Status, o.Index}
		if len(places[k]) != 1 {
			continue
		}
		at := places[k][0]
		if at < last && o.at-o.Took > lastAt {
			s.reportViolation(Audited, hub, "%s is before %s in its audit, and was asked for after the answer to that", k, before)
		}
		if at > last {
			last, lastAt, before = at, o.at, k
		}
	}
}

// String returns the change for people.
func (k auditKey) String() string {
	return fmt.Sprintf("%s %s (status %d, entry %d)", k.verb, k.object, k.status, k.index)
}
