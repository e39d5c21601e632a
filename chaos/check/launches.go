package check

import (
	"fmt"
	"maps"
	"time"

	"skerry/fleet"
)

// launches checks that a periodic job is launched once for each time, without overlap if it prohibits that.
type launches struct {
	children map[fleet.JobID]time.Duration // when each child was launched
	terms    map[fleet.JobID]uint64        // the term of each job's last launch
}

// newLaunches returns the checker of periodic launches.
func newLaunches() checker {
	t := &launches{children: map[fleet.JobID]time.Duration{}, terms: map[fleet.JobID]uint64{}}
	return checker{state: t, entry: t.judgeEntryLaunches, rewind: t.forgetLaunches, tick: t.forgetOldLaunches}
}

// forgetLaunches drops everything, because hubs that were restored from an older copy repeat their later launches.
func (t *launches) forgetLaunches(*runContext) {
	clear(t.children)
	clear(t.terms)
}

// judgeEntryLaunches judges the launch that an entry makes.
func (t *launches) judgeEntryLaunches(s *runContext, a *Applied) {
	if l := a.Effects.Launched; l != nil {
		t.judgeLaunch(s, a.Term, l)
	}
}

// judgeLaunch reports a child that was launched before, and one that is launched while earlier ones run and the job
// prohibits overlap.
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

// forgetOldLaunches drops launches that are older than keptLaunches.
func (t *launches) forgetOldLaunches(s *runContext) {
	maps.DeleteFunc(t.children, func(_ fleet.JobID, at time.Duration) bool { return s.now-at > keptLaunches })
}
