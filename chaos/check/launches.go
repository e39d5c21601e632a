package check

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"skerry/fleet"
)

// launches checks that a periodic job is launched once for each time: by hubs, without overlap if it prohibits that, and by an
// edge in one allocation.
type launches struct {
	atEdges  map[edgeLaunch]time.Duration  // when a row of each launch by an edge was applied
	children map[fleet.JobID]time.Duration // when each child was launched
	terms    map[fleet.JobID]uint64        // the term of each job's last launch
}

// edgeLaunch is a launch by an edge: the allocation, and the time for which it is launched.
type edgeLaunch struct {
	alloc fleet.AllocID
	time  string
}

// launchRow begins the message of a row that says that an edge launches an allocation for a time, and launchEndRow that of one
// that says that the launch is over.
const launchRow, launchEndRow = "launched for ", "the launch for "

// newLaunches returns the checker of periodic launches.
func newLaunches() checker {
	t := &launches{atEdges: map[edgeLaunch]time.Duration{}, children: map[fleet.JobID]time.Duration{}, terms: map[fleet.JobID]uint64{}}
	return checker{state: t, entry: t.judgeEntryLaunches, rewind: t.forgetLaunches, tick: t.forgetOldLaunches}
}

// forgetLaunches drops everything, because hubs that were restored from an older copy repeat their later launches.
func (t *launches) forgetLaunches(*runContext) {
	clear(t.atEdges)
	clear(t.children)
	clear(t.terms)
}

// judgeEntryLaunches judges the launch that an entry makes, and those by edges of which it applies rows.
func (t *launches) judgeEntryLaunches(s *runContext, a *Applied) {
	if l := a.Effects.Launched; l != nil {
		t.judgeLaunch(s, a.Term, l)
	}
	for _, taken := range s.newRows {
		for i := range taken.rows {
			if row := &taken.rows[i]; strings.HasPrefix(row.Message, launchRow) {
				t.judgeEdgeLaunch(s, taken.node, row)
			}
		}
	}
}

// judgeEdgeLaunch reports a time for which an edge has launched an allocation before, unless its journal lost rows since.
func (t *launches) judgeEdgeLaunch(s *runContext, node fleet.NodeID, row *fleet.Transition) {
	s.countJudgement(LaunchedOnce)
	m := s.machineOf(node)
	message, _, _ := strings.Cut(strings.TrimPrefix(row.Message, launchRow), ",") // what follows says that it is late
	l := edgeLaunch{row.Alloc, message}
	if at, again := t.atEdges[l]; again && m != nil && !m.hasDamageSince(at-s.limits.Heal) && !s.isClonedMachine(m.name) {
		s.reportViolation(LaunchedOnce, m.name, "row %d: allocation %s is launched again for %s: the row of the first launch was applied at %s",
			row.Seq, fleet.Short(row.Alloc), message, at)
	}
	t.atEdges[l] = s.now
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
	maps.DeleteFunc(t.atEdges, func(_ edgeLaunch, at time.Duration) bool { return s.now-at > keptLaunches })
	maps.DeleteFunc(t.children, func(_ fleet.JobID, at time.Duration) bool { return s.now-at > keptLaunches })
}
