package check

import (
	"maps"
	"time"

	"skerry/fleet"
)

// dispatches checks that each acknowledged dispatch of a job has exactly one child, that the child and its tasks get the
// payload and the meta that a user gave, and that a dispatch with a flaw has no child.
type dispatches struct {
	byToken map[dispatchToken]*dispatchFact
	byChild map[fleet.JobID]*dispatchFact
}

// dispatchToken identifies a dispatch of a job. A client may repeat the request with the same token.
type dispatchToken struct {
	job   fleet.JobID
	token string
}

// dispatchFact is what is known of a dispatch.
type dispatchFact struct {
	asked   *DispatchCall // by the user; nil: not observed
	child   fleet.JobID   // by the first entry that has one; "": there is none
	seen    time.Duration // when something of it was observed last
	entered time.Duration // when the entry with its child was observed

	acknowledged   []fleet.JobID // children of acknowledgements that were not judged yet
	acknowledgedAt time.Duration // when the last one was observed
}

// newDispatches returns the checker of dispatches.
func newDispatches() checker {
	t := &dispatches{byToken: map[dispatchToken]*dispatchFact{}, byChild: map[fleet.JobID]*dispatchFact{}}
	return checker{
		state: t, entry: t.judgeEntryDispatch, dispatch: t.recordCall, given: t.judgeGivenInput, rewind: t.forgetDispatches,
		tick: t.judgeAcknowledged,
	}
}

// forgetDispatches drops everything, because hubs that were restored from an older copy forget their later dispatches.
func (t *dispatches) forgetDispatches(*runContext) {
	clear(t.byToken)
	clear(t.byChild)
}

// recordCall records a dispatch that a user asks for, or its acknowledgement. It reports the acknowledgement of one with a
// flaw.
func (t *dispatches) recordCall(s *runContext, c *DispatchCall) {
	if s.faults.isRewindActive() {
		return // the hubs may forget it
	}
	f := ensure(t.byToken, dispatchToken{c.Job, c.Token})
	f.asked, f.seen = c, s.now
	if c.Child == "" {
		return
	}
	s.countJudgement(LaunchedOnce)
	if c.Flaw != "" {
		s.reportViolation(LaunchedOnce, string(c.Job), "%s is acknowledged, though its dispatch has a flaw (%s): %s", c.Child, c.Flaw, c.Input)
	}
	f.acknowledged, f.acknowledgedAt = append(f.acknowledged, c.Child), s.now
}

// judgeEntryDispatch judges the child that an entry has for a dispatch: it is that of the first entry with the same token,
// the only one, and gets what the user gave.
func (t *dispatches) judgeEntryDispatch(s *runContext, a *Applied) {
	d := a.Effects.Dispatched
	if d == nil {
		return
	}
	s.countJudgement(LaunchedOnce)
	f := ensure(t.byToken, dispatchToken{d.Job, d.Token})
	switch {
	case f.child != "" && f.child != d.Child:
		s.reportViolation(LaunchedOnce, string(d.Job), "%s is dispatched with the token with which %s was dispatched at %s", d.Child, f.child, f.entered)
	case d.Children > 1:
		s.reportViolation(LaunchedOnce, string(d.Job), "%s is one of %d children that are dispatched with its token", d.Child, d.Children)
	case f.asked != nil && f.asked.Flaw != "":
		s.reportViolation(LaunchedOnce, string(d.Job), "%s is dispatched, though its dispatch has a flaw (%s): %s", d.Child, f.asked.Flaw, f.asked.Input)
	case f.asked != nil && f.asked.Input != d.Input:
		s.reportViolation(LaunchedOnce, string(d.Job), "%s has %s, and the user gave %s", d.Child, d.Input, f.asked.Input)
	}
	if f.child != "" {
		s.countBranch(BranchDispatchRepeated)
	}
	f.child, f.seen, f.entered = d.Child, s.now, s.now
	t.byChild[d.Child] = f
}

// judgeGivenInput reports a task that finds another payload or meta than the user gave.
func (t *dispatches) judgeGivenInput(s *runContext, g *GivenInput) {
	f := t.byChild[g.Child]
	if f == nil || f.asked == nil {
		return
	}
	s.countJudgement(LaunchedOnce)
	s.countBranch(BranchDispatchGiven)
	if f.asked.Input != g.Input {
		s.reportViolation(LaunchedOnce, g.Edge, "a task of %s finds %s, and the user gave %s", g.Child, g.Input, f.asked.Input)
	}
}

// judgeAcknowledged reports, after Limits.Deliver, acknowledged children that no entry has. It drops dispatches of which
// nothing was observed for keptLaunches.
func (t *dispatches) judgeAcknowledged(s *runContext) {
	for of, f := range t.byToken {
		if len(f.acknowledged) == 0 || s.now-f.acknowledgedAt <= s.limits.Deliver || s.isBehindGap() || !s.entries {
			continue
		}
		for _, child := range f.acknowledged {
			s.countJudgement(LaunchedOnce)
			if child != f.child {
				s.reportViolation(LaunchedOnce, string(of.job), "the dispatch %s is acknowledged with %q: the log has %q", of.token, child, f.child)
			}
		}
		f.acknowledged = nil
	}
	maps.DeleteFunc(t.byToken, func(_ dispatchToken, f *dispatchFact) bool { return s.now-f.seen > keptLaunches })
	maps.DeleteFunc(t.byChild, func(_ fleet.JobID, f *dispatchFact) bool { return s.now-f.seen > keptLaunches })
}
