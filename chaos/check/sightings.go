package check

import (
	"slices"
	"time"

	"skerry/fleet"
)

// sightings counts branches that no other checker counts. It judges nothing.
type sightings struct {
	opened  []time.Duration           // times of the newest sessions of nodes that had missed a deadline
	away    map[fleet.NodeID]bool     // nodes that missed a deadline and have no session since
	exited  map[TaskKey]time.Duration // when tasks exited while their edge had no link
	rebinds []rebind
}

// rebind is a fault that gave an edge another address in the middle of a session.
type rebind struct {
	edge    string
	session uint64
	at      time.Duration
}

// kindRebind is the name in chaos/schedule of the kind of fault that gives an edge another address in the
// middle of a session.
const kindRebind = "nat-rebind"

const (
	massRejoin  = 5 // sessions within rejoinsIn that make a mass rejoin
	rejoinsIn   = 10 * time.Second
	reboundFor  = 20 * time.Second // a session that lasts so long after it has survived the new address
	backoffLong = 30 * time.Second // a pause that only a back-off near its cap has
)

// newSightings returns the checker that only counts branches.
func newSightings() checker {
	t := &sightings{away: map[fleet.NodeID]bool{}, exited: map[TaskKey]time.Duration{}}
	return checker{state: t, entry: t.countEntryBranches, task: t.countTaskBranches, edge: t.countLinkBranches, fault: t.recordRebinds, agent: t.forgetRebinds}
}

// recordRebinds records the edges with a session whose address a fault changes.
func (t *sightings) recordRebinds(s *runContext, f *Fault) {
	if f.Kind != kindRebind || f.End {
		return
	}
	for _, name := range f.Targets {
		if m := s.machines.by[name]; m != nil && m.connected >= 0 {
			t.rebinds = append(t.rebinds, rebind{name, m.session, s.now})
		}
	}
}

// countEntryBranches counts fenced clones, mass rejoins, replacements of unknown allocations, and rows of ends
// that happened without a link.
func (t *sightings) countEntryBranches(s *runContext, applied *Applied) {
	e := applied.Effects
	for _, m := range e.Moved {
		t.away[m.Node] = true
	}
	if e.Fenced != nil {
		s.countBranch(BranchCloneFenced)
	}
	if e.Opened != nil && t.away[e.Opened.Node] {
		t.away[e.Opened.Node] = false
		t.opened = append(t.opened, s.now)
		if len(t.opened) > massRejoin {
			t.opened = t.opened[1:]
		}
		if len(t.opened) == massRejoin && s.now-t.opened[0] <= rejoinsIn {
			s.countBranch(BranchMassRejoin)
		}
	}
	for i := range e.Allocs {
		a := &e.Allocs[i]
		if previous := s.registry.allocs[a.PreviousAllocation]; previous != nil && previous.alloc.ClientStatus == fleet.ClientUnknown &&
			s.registry.allocs[a.ID].first == s.now {
			s.countBranch(BranchReplacedAway)
		}
	}
	for _, k := range s.newRows {
		for i := range k.rows {
			if ended := k.rows[i].ClientStatus; t.isReportingAbsence(s, k.node) && (ended == fleet.ClientComplete || ended == fleet.ClientFailed) {
				s.countBranch(BranchEndedAway)
			}
		}
	}
}

// isReportingAbsence reports whether, by its last poll, the agent of a node had no session: its rows are then of an
// absence.
func (t *sightings) isReportingAbsence(s *runContext, id fleet.NodeID) bool {
	m := s.machineOf(id)
	return m != nil && m.connected < 0
}

// countTaskBranches counts tasks that exit and start again while their edge has no link.
func (t *sightings) countTaskBranches(s *runContext, e *Task) {
	key := TaskKey{e.Alloc, e.Task}
	cut := s.faults.hasFaultNow(e.Edge, Severs)
	switch e.What {
	case TaskExited:
		if cut {
			t.exited[key] = s.now
		}
		if len(t.exited) > keptTasks {
			clear(t.exited)
		}
	case TaskStarted:
		if _, ok := t.exited[key]; ok && cut {
			s.countBranch(BranchRestartedAway)
		}
		delete(t.exited, key)
	}
}

// countLinkBranches counts what an edge reports of its link: an older cluster, a long back-off, a moved clock,
// and a session that survived another address.
func (t *sightings) countLinkBranches(s *runContext, e *Edge) {
	l, name := e.Link, e.Name
	if l == nil {
		return
	}
	if l.WentBack != "" {
		s.countBranch(BranchClusterWentBack)
	}
	if l.NextTry >= backoffLong {
		s.countBranch(BranchBackoffAtCap)
	}
	if m := s.machines.by[name]; m != nil && s.faults.hasFaultAt(name, s.now, MovesTime) && len(m.tasks) > 0 {
		s.countBranch(BranchClockMoved)
	}
	t.rebinds = slices.DeleteFunc(t.rebinds, func(r rebind) bool {
		switch {
		case r.edge != name:
			return false
		case !l.Connected || l.Session != r.session:
			return true
		case s.now-r.at >= reboundFor:
			s.countBranch(BranchRebound)
			return true
		}
		return false
	})
}

// forgetRebinds drops the rebinds of an edge whose agent starts or ends: the session is over.
func (t *sightings) forgetRebinds(_ *runContext, p *Process) {
	t.rebinds = slices.DeleteFunc(t.rebinds, func(r rebind) bool { return r.edge == p.Name })
}
