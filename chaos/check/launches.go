package check

import (
	"fmt"
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

func newLaunches() *launches {
	return &launches{children: map[fleet.JobID]time.Duration{}, terms: map[fleet.JobID]uint64{}, dispatched: map[dispatch]child{}}
}

func (t *launches) handleObservation(s *runContext, o *Observation) {
	if o.Fault.hasRewindEffect() { // what was launched since the copy is launched again
		clear(t.children)
		clear(t.terms)
		clear(t.dispatched)
	}
	if o.Applied == nil || o.Applied.Effects == nil {
		return
	}
	if d := o.Applied.Effects.Dispatched; d != nil {
		t.judgeDispatch(s, *d)
	}
	if l := o.Applied.Effects.Launched; l != nil {
		t.judgeLaunch(s, o.Applied.Term, l)
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

func (t *launches) handleTick(s *runContext) {
	for id, at := range t.children {
		if s.now-at > keptLaunches {
			delete(t.children, id)
		}
	}
	for asked, c := range t.dispatched {
		if s.now-c.at > keptLaunches {
			delete(t.dispatched, asked)
		}
	}
}

func (t *launches) handleRunEnd(*runContext, *FleetSnapshot) {}
