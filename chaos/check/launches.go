package check

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// launches judges jobs that are launched by the clock.
type launches struct {
	children map[fleet.JobID]time.Duration // launched, and when
	terms    map[fleet.JobID]uint64        // of each job's last launch
}

func newLaunches() *launches {
	return &launches{children: map[fleet.JobID]time.Duration{}, terms: map[fleet.JobID]uint64{}}
}

func (t *launches) see(s *scene, o *Observation) {
	if o.Fault.rewinds() { // what was launched since the copy is launched again
		clear(t.children)
		clear(t.terms)
	}
	if o.Applied == nil || o.Applied.Effects == nil || o.Applied.Effects.Launched == nil {
		return
	}
	l := o.Applied.Effects.Launched
	s.judge(LaunchedOnce)
	if at, again := t.children[l.Child]; again {
		s.broke(LaunchedOnce, string(l.Job), "%s is launched again: it was at %s", l.Child, at)
	}
	if l.Alone && len(l.Beside) > 0 {
		s.shown(LaunchedOnce, string(l.Job), []string{fmt.Sprint(l.Beside)}, "%s is launched while %d before it are not over, and the job prohibits that",
			l.Child, len(l.Beside))
	}
	if term, before := t.terms[l.Job]; before && term != o.Applied.Term {
		s.reach(BranchLaunchedByNext)
	}
	t.children[l.Child], t.terms[l.Job] = s.now, o.Applied.Term
}

// keptLaunches is how long a launch is remembered: one that comes again comes soon.
const keptLaunches = 24 * time.Hour

func (t *launches) tick(s *scene) {
	for id, at := range t.children {
		if s.now-at > keptLaunches {
			delete(t.children, id)
		}
	}
}

func (t *launches) end(*scene, *Picture) {}
