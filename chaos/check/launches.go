package check

import (
	"fmt"
	"maps"
	"time"

	"skerry/fleet"
)

// launches judges jobs that are launched by the clock, or dispatched.
type launches struct {
	children   map[fleet.JobID]time.Duration // launched, and when
	terms      map[fleet.JobID]uint64        // of each job's last launch
	dispatched map[dispatch]child
}

// dispatch is what somebody asked for, maybe several times.
type dispatch struct {
	job   fleet.JobID
	token string
}

type child struct {
	id fleet.JobID
	at time.Duration
}

func newLaunches() checker {
	t := &launches{children: map[fleet.JobID]time.Duration{}, terms: map[fleet.JobID]uint64{}, dispatched: map[dispatch]child{}}
	return checker{state: t, entry: t.judgeEntryLaunches, rewind: t.forgetLaunches, tick: t.forgetOldLaunches}
}

// forgetLaunches forgets all: what was launched since the copy is launched again.
func (t *launches) forgetLaunches(*runContext) {
	clear(t.children)
	clear(t.terms)
	clear(t.dispatched)
}

func (t *launches) judgeEntryLaunches(s *runContext, a *Applied) {
	if d := a.Effects.Dispatched; d != nil {
		t.judgeDispatch(s, *d)
	}
	if l := a.Effects.Launched; l != nil {
		t.judgeLaunch(s, a.Term, l)
	}
}

// judgeDispatch judges that what was asked for with the same token is the same child.
func (t *launches) judgeDispatch(s *runContext, d Dispatch) {
	s.countJudgement(LaunchedOnce)
	asked := dispatch{d.Job, d.Token}
	if first, again := t.dispatched[asked]; again && first.id != d.Child {
		s.reportViolation(LaunchedOnce, string(d.Job), "%s is dispatched with a token that %s was with, at %s", d.Child, first.id, first.at)
	}
	t.dispatched[asked] = child{d.Child, s.now}
}

func (t *launches) judgeLaunch(s *runContext, term uint64, l *Launch) {
	s.countJudgement(LaunchedOnce)
	if at, again := t.children[l.Child]; again {
		s.reportViolation(LaunchedOnce, string(l.Job), "%s is launched again: it was at %s", l.Child, at)
	}
	if l.Alone && len(l.Beside) > 0 {
		s.reportWithEvidence(LaunchedOnce, string(l.Job), []string{fmt.Sprint(l.Beside)}, "%s is launched while %d before it are not over, and the job prohibits that",
			l.Child, len(l.Beside))
	}
	if last, before := t.terms[l.Job]; before && last != term {
		s.countBranch(BranchLaunchedByNext)
	}
	t.children[l.Child], t.terms[l.Job] = s.now, term
}

// keptLaunches is how long a launch is remembered: one that comes again comes soon.
const keptLaunches = 24 * time.Hour

func (t *launches) forgetOldLaunches(s *runContext) {
	maps.DeleteFunc(t.children, func(_ fleet.JobID, at time.Duration) bool { return s.now-at > keptLaunches })
	maps.DeleteFunc(t.dispatched, func(_ dispatch, c child) bool { return s.now-c.at > keptLaunches })
}
