package check

import (
	"fmt"
	"maps"
	"time"

	"skerry/fleet"
)

// launches checks that a periodic job is launched once for each time, without overlap if it prohibits that, and that a
// dispatch with a used token makes no second child.
type launches struct {
	children   map[fleet.JobID]time.Duration // when each child was launched
	terms      map[fleet.JobID]uint64        // the term of each job's last launch
	dispatched map[dispatch]child
}

// dispatch identifies a request to dispatch a job. A client may repeat it with the same token.
type dispatch struct {
	job   fleet.JobID
	token string
}

// child is the job that a dispatch made, and when it was observed.
type child struct {
	id fleet.JobID
	at time.Duration
}

// newLaunches returns the checker of periodic launches and dispatches.
func newLaunches() checker {
	t := &launches{children: map[fleet.JobID]time.Duration{}, terms: map[fleet.JobID]uint64{}, dispatched: map[dispatch]child{}}
	return checker{state: t, entry: t.judgeEntryLaunches, rewind: t.forgetLaunches, tick: t.forgetOldLaunches}
}

// forgetLaunches drops everything, because hubs that were restored from an older copy repeat their later launches.
func (t *launches) forgetLaunches(*runContext) {
	clear(t.children)
	clear(t.terms)
	clear(t.dispatched)
}

// judgeEntryLaunches judges the dispatch and the launch of an entry, if any.
func (t *launches) judgeEntryLaunches(s *runContext, a *Applied) {
	if d := a.Effects.Dispatched; d != nil {
		t.judgeDispatch(s, *d)
	}
	if l := a.Effects.Launched; l != nil {
		t.judgeLaunch(s, a.Term, l)
	}
}

// judgeDispatch reports a dispatch whose token was answered with another child before.
func (t *launches) judgeDispatch(s *runContext, d Dispatch) {
	s.countJudgement(LaunchedOnce)
	asked := dispatch{d.Job, d.Token}
	if first, again := t.dispatched[asked]; again && first.id != d.Child {
		s.reportViolation(LaunchedOnce, string(d.Job), "%s is dispatched with the token with which %s was dispatched at %s", d.Child, first.id, first.at)
	}
	t.dispatched[asked] = child{d.Child, s.now}
}

// judgeLaunch reports a child that was launched before, and one that is launched while earlier ones run and the
// job prohibits overlap.
func (t *launches) judgeLaunch(s *runContext, term uint64, l *Launch) {
	s.countJudgement(LaunchedOnce)
	if at, again := t.children[l.Child]; again {
		s.reportViolation(LaunchedOnce, string(l.Job), "%s is launched again: it was at %s", l.Child, at)
	}
	if l.Alone && len(l.Beside) > 0 {
		s.reportWithEvidence(LaunchedOnce, string(l.Job), []string{fmt.Sprint(l.Beside)}, "%s is launched while %d earlier ones are not over, and the job prohibits overlap",
			l.Child, len(l.Beside))
	}
	if last, before := t.terms[l.Job]; before && last != term {
		s.countBranch(BranchLaunchedByNext)
	}
	t.children[l.Child], t.terms[l.Job] = s.now, term
}

// keptLaunches is the time for which a launch or a dispatch is remembered. A mistaken repetition comes soon.
const keptLaunches = 24 * time.Hour

// forgetOldLaunches drops launches and dispatches that are older than keptLaunches.
func (t *launches) forgetOldLaunches(s *runContext) {
	maps.DeleteFunc(t.children, func(_ fleet.JobID, at time.Duration) bool { return s.now-at > keptLaunches })
	maps.DeleteFunc(t.dispatched, func(_ dispatch, c child) bool { return s.now-c.at > keptLaunches })
}
